"""Judges what the ranks of the all-reduce report."""

from __future__ import annotations

from collections.abc import Iterable

from training.cluster.conformance.check import Finding, judged, skipped
from training.cluster.conformance.floors import SHARE, floor_of
from training.cluster.conformance.judges.ranks import troubles
from training.cluster.conformance.judges.shape import JobShape
from training.conformance.facts import FabricFacts, RankFacts
from training.conformance.transport import EFA, SOCKET

_GIGA = 1e9


def cuda(facts: FabricFacts, *, branch: str, version: str) -> Finding:
    """Every rank has the release's driver branch, and a PyTorch that was built for its CUDA."""
    expected = f"driver branch {branch}, CUDA {version}"
    if not facts.has_gpus:
        return skipped("the ranks have no GPU: they computed on the CPU", expected=expected)

    def find(one: RankFacts) -> str:
        is_right = one.driver.partition(".")[0] == branch and one.cuda == version
        return "" if is_right else f"driver {one.driver or 'unknown'}, CUDA {one.cuda or 'none'}"

    wrong = troubles(facts.ranks, find)
    device = ", ".join(sorted({one.device for one in facts.ranks}))
    return judged(holds=not wrong, expected=expected, found=wrong or f"{len(facts.ranks)} ranks on {device}")


def all_reduce_sum(facts: FabricFacts, shape: JobShape) -> Finding:
    """All ranks met, on as many pods as the job has, and their sum is right."""
    pods = f"{shape.ranks} ranks on {shape.pods} pods"
    sums = "a right sum" if facts.all_reduce.is_correct else "a wrong sum"
    is_whole = len(facts.ranks) == shape.ranks and len(facts.hosts) == shape.pods
    return judged(
        holds=facts.all_reduce.is_correct and is_whole,
        expected=f"{pods}, a right sum",
        found=f"{len(facts.ranks)} ranks on {len(facts.hosts)} pods, {sums}",
    )


def bandwidth(facts: FabricFacts, shape: JobShape) -> Finding:
    """The bus bandwidth against the floor, where whole nodes communicated by NCCL and their type has one."""
    measured = facts.all_reduce
    found = f"{measured.bus_bytes_per_second / _GIGA:.3g} GB/s with {measured.backend}"
    floor = floor_of(shape.instance_type)
    if measured.backend != "nccl":
        return skipped(f"{found}: without GPUs there is no floor", expected="the floor of a GPU type")
    if floor is None:
        return skipped(f"{found}: {shape.instance_type} has no floor", expected="the floor of the type")
    expected = f"at least {floor / _GIGA:.3g} GB/s, {SHARE:.0%} of the network of {shape.instance_type}"
    if shape.pods < 2 or shape.gpus < shape.gpus_per_node:
        part = f"{shape.pods} pods with {shape.gpus} of {shape.gpus_per_node} GPUs"
        return skipped(f"{found} on {part}: the floor is for whole nodes, two or more", expected=expected)
    return judged(holds=measured.bus_bytes_per_second >= floor, expected=expected, found=found)


def efa(facts: FabricFacts, shape: JobShape) -> Finding:
    """NCCL's log of every rank names EFA's provider and no socket, and the devices of each node have sent the buffer.

    In an all-reduce each node has to send as many bytes as its ranks' sum has, once at least: the other nodes cannot do without them.
    """
    least = facts.all_reduce.size_bytes
    expected = f"provider efa in every rank's log of NCCL, and {least / _GIGA:.3g} GB or more sent by the EFA devices of each node"
    if shape.pods < 2:
        return skipped("the job has one pod, in which NCCL uses no network", expected=expected)
    if not shape.efa:
        return skipped("the job's pods have no EFA interfaces", expected=expected)
    if not facts.has_gpus:
        return skipped("the ranks have no GPU, and so no NCCL, which EFA is for", expected=expected)

    def find(one: RankFacts) -> str:
        is_right = EFA in one.networks and SOCKET not in one.networks
        return "" if is_right else f"used {', '.join(one.networks) or 'no network that NCCL names'}"

    wrong = troubles(facts.ranks, find)
    sent = _sent_by_host(facts.ranks)
    idle = [f"the EFA devices of {host} sent {count:,} bytes" for host, count in sent.items() if count < least]
    wrong = "; ".join(filter(None, (wrong, *idle)))
    told = (
        f"{min(sent.values()) / _GIGA:.3g} GB or more sent by each node"
        if sent
        else "the pods see no counters of the devices"
    )
    return judged(holds=not wrong, expected=expected, found=wrong or f"efa in every rank; {told}")


def _sent_by_host(ranks: Iterable[RankFacts]) -> dict[str, int]:
    """Bytes that the EFA devices of each pod's node sent: the most that one of its ranks has counted. Without counters empty."""
    found: dict[str, int] = {}
    for one in ranks:
        if one.efa_bytes is not None:
            found[one.host] = max(found.get(one.host, 0), one.efa_bytes)
    return found

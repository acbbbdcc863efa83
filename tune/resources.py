"""The resources of a trial, and how many trials run at the same time on a machine or cluster. Imports no Ray.

A trial is a placement group: a bundle for the actor that drives it, and one for each of its ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from observability.quantities import counted
from training.config.schema import ScaleSettings
from training.errors import PreflightError, SettingsError
from training.preflight import Machine
from tune.settings import SearchSettings

HEAD: Final = "node:__internal_head__"
"""Ray's resource that only the head node has, once (ray/_private/resource_spec.py). A trial's actor takes so large a part of it that
no more trials run than are planned, whether new or resumed by a scheduler, and none takes a CPU from the ranks. The driver
reads the trials' logs on the same node."""

_SMALLEST = 10_000
"""Parts of a resource that Ray distinguishes."""

ACTOR_BYTES: Final = 224 * 2**20
"""Memory of a trial's actor: 226 MiB resident with Ray Tune imported (Ray 2.60, Python 3.11, x86_64), of which 141 MiB are its own."""

RANK_BYTES: Final = 440 * 2**20
"""Memory of a rank's process before its model: 822 MiB resident with torch imported (torch 2.15, `digits`), of which these are its
own; the others are shared with the other ranks."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a trial reserves, and how many trials run.

    Attributes:
        bundles: resources of the trial's actor, then of each rank, as Ray names them.
        concurrent: trials that run at the same time.
        cpus: CPUs that they use together.
        gpus: GPUs that they use together.
    """

    bundles: list[dict[str, float]]
    concurrent: int
    cpus: int
    gpus: int


def check_scale(scale: ScaleSettings, search: SearchSettings) -> float:
    """Refuse what no machine or cluster can run; returns the GPUs of a rank.

    Raises:
        SettingsError: another launcher than Ray, a range of workers, or a share of a GPU for ranks that cannot share one.
    """
    if scale.is_elastic:
        raise SettingsError(
            f"scale.workers={scale.min_workers}-{scale.workers}: the trials of a search have a fixed number of workers",
            remedy=f"use scale.workers={scale.min_workers} or {scale.workers}",
        )
    if scale.launcher != "ray":
        raise SettingsError(
            f"scale.launcher={scale.launcher}: only Ray can start the workers of a search's trials",
            remedy="omit it, or set scale.launcher=ray",
        )
    return _gpu_share(scale, search)


def plan_trials(scale: ScaleSettings, search: SearchSettings, *nodes: Machine, memory: int | None = None) -> Plan:
    """How the trials of a search share a machine or the nodes of a cluster.

    Args:
        scale: of each trial.
        search: the `search` section.
        nodes: this machine, or the cluster's nodes at their full number.
        memory: bytes that are free on this machine for all trials; None on a cluster, whose pods have theirs.

    Raises:
        SettingsError: see `check_scale`.
        PreflightError: a trial, or as many trials as `search.concurrency` says, never fit; names what does.
    """
    share = check_scale(scale, search)
    room = sum(_ranks_on(node, scale, share) for node in nodes)
    if room < scale.workers:
        raise _too_small(scale, nodes, room=room)
    fitting, why = min(_limits(scale, nodes, room=room, memory=memory))
    wanted = min(search.concurrency or search.trials, search.trials)
    if fitting < 1 or (search.concurrency is not None and fitting < wanted):
        fits = f"--set search.concurrency={fitting} fits" if fitting else "lower scale.workers, or end other programs"
        raise PreflightError(f"{counted(wanted, 'trial')} cannot run at the same time: {why}", remedy=fits)
    concurrent = min(wanted, fitting)
    rank = {"CPU": float(scale.cpus_per_worker), **({"GPU": share} if share else {})}
    return Plan(
        bundles=[{HEAD: _SMALLEST // concurrent / _SMALLEST}, *[rank] * scale.workers],
        concurrent=concurrent,
        cpus=concurrent * scale.workers * scale.cpus_per_worker,
        gpus=math.ceil(concurrent * scale.workers / sharers(share)) if share else 0,
    )


def _limits(
    scale: ScaleSettings, nodes: Sequence[Machine], *, room: int, memory: int | None
) -> Iterator[tuple[int, str]]:
    """Trials that may run at the same time, each with what limits them."""
    yield room // scale.workers, f"each needs {_demand(scale)}, and {_supply(nodes)}"
    if memory is not None:
        need = ACTOR_BYTES + scale.workers * RANK_BYTES
        parts = f"{ACTOR_BYTES >> 20} MiB to drive it and {RANK_BYTES >> 20} MiB for each worker before it has a model"
        yield (
            memory // need,
            f"each takes about {need >> 20} MiB of memory, {parts}, and {memory >> 20} MiB are free",
        )


def _gpu_share(scale: ScaleSettings, search: SearchSettings) -> float:
    """GPUs of a rank."""
    share = search.gpus_per_worker
    if not scale.gpu:
        if share != 1:
            raise SettingsError(
                f"search.gpus_per_worker={share:g} needs scale.gpu=true", remedy="set it, or omit the share"
            )
        return 0.0
    if share < 1 and scale.workers > 1:
        raise SettingsError(
            f"search.gpus_per_worker={share:g}: the {scale.workers} workers of a trial could meet on one GPU, which NCCL refuses",
            remedy="set scale.workers=1, or search.gpus_per_worker=1",
        )
    return share


def _ranks_on(node: Machine, scale: ScaleSettings, share: float) -> int:
    """Ranks that fit on a node."""
    ranks = node.cpus // scale.cpus_per_worker
    return min(ranks, node.gpus * sharers(share)) if share else ranks


def sharers(share: float) -> int:
    """Ranks that fit on one GPU: the share of each lies within it. Ten of 0.1 do."""
    return math.floor(1 / share + 1e-9)


def _too_small(scale: ScaleSettings, nodes: Sequence[Machine], *, room: int) -> PreflightError:
    largest = max((node.cpus for node in nodes if node.gpus or not scale.gpu), default=0)
    if room:
        remedy = f"--set scale.workers={room} fits"
    elif scale.gpu and not any(node.gpus for node in nodes):
        remedy = "set scale.gpu=false to train on CPUs"
    else:
        remedy = f"--set scale.workers=1 --set scale.cpus_per_worker={largest} fits"
    return PreflightError(f"a trial never fits: it needs {_demand(scale)}, and {_supply(nodes)}", remedy=remedy)


def _demand(scale: ScaleSettings) -> str:
    gpu, each = " and a GPU" if scale.gpu else "", " each" if scale.workers > 1 else ""
    return f"{counted(scale.workers, 'worker')} with {counted(scale.cpus_per_worker, 'CPU')}{gpu}{each}"


def _supply(nodes: Sequence[Machine]) -> str:
    there = f"{counted(sum(node.cpus for node in nodes), 'CPU')} and {counted(sum(node.gpus for node in nodes), 'GPU')}"
    if len(nodes) == 1:
        return f"there {'is' if there.startswith('1 ') else 'are'} {there}"
    return (
        f"the {len(nodes)} nodes have {there} in all, at most {counted(max(node.cpus for node in nodes), 'CPU')} on one"
    )

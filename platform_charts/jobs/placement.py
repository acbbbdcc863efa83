"""Which nodes serve a request, how many pods it becomes, and how large each one is.

The ranks of a node share one pod. NCCL uses NVLink and shared memory only between processes that see each other's
memory, which pods under `restricted` do not (no hostIPC), and a pod with all GPUs of a node gets all its EFA interfaces.
So a job larger than a node takes equal parts of several nodes, one pod each, and a smaller job is one pod with a part of
a node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from infra.spec.catalog import Catalog
from infra.spec.errors import RefusedError, SettingsError
from infra.spec.outputs import GpuGroupOutput, TeamOutput
from infra.spec.section import nearest
from platform_charts.jobs.request import ClusterRequest, JobRequest, Target
from platform_charts.jobs.resources import Share, cpu_share, gpu_share


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Equal worker pods on one kind of node.

    Attributes:
        group: the GPU node group; None is the system nodes.
        pods: number of worker pods; of a cluster that scales, the largest.
        gpus: GPUs of each pod.
        share: CPU and memory of each pod.
        efa: EFA interfaces of each pod.
    """

    group: GpuGroupOutput | None
    pods: int
    gpus: int
    share: Share
    efa: int

    @property
    def is_interruptible(self) -> bool:
        """Whether AWS may reclaim the nodes with two minutes' notice."""
        return self.group is not None and self.group.capacity_type == "SPOT"


class _Unfit(Exception):  # noqa: N818  # not an error: the next group may fit
    """Why a group cannot serve a request."""


_Fit = Callable[[GpuGroupOutput], Placement]


def find_team(name: str, target: Target) -> TeamOutput:
    """The team of that name.

    Raises:
        SettingsError: the stack has no such team; names the nearest one.
    """
    teams = {team.name: team for team in target.outputs.teams}
    if name not in teams:
        raise SettingsError(
            f"team={name!r}: stack {target.outputs.environment} has no such team",
            remedy=nearest(name, teams) if teams else "add a team to the environment's file and bring the stack up",
        )
    return teams[name]


def place_job(request: JobRequest, target: Target) -> Placement:
    """Place a job's ranks on nodes.

    Raises:
        SettingsError: the stack has no such group.
        RefusedError: the group, or every group, is too small; the message has the numbers.
    """
    if request.gpus_per_worker == 0:
        return _on_system_nodes(request, pods=request.workers)
    return _choose(request, target, lambda group: _fit_job(request, group, target.catalog))


def place_cluster(request: ClusterRequest, target: Target) -> Placement:
    """Place the workers of a cluster that scales: a GPU each, so that any number of them may come and go.

    Raises:
        SettingsError: the stack has no such group.
        RefusedError: the group, or every group, is too small; the message has the numbers.
    """
    if request.gpus_per_worker == 0:
        return _on_system_nodes(request, pods=request.max_workers)
    return _choose(request, target, lambda group: _fit_cluster(request, group, target.catalog))


def _on_system_nodes(request: JobRequest | ClusterRequest, *, pods: int) -> Placement:
    if request.group is not None:
        raise SettingsError(
            f"group={request.group} has GPU nodes, but gpus_per_worker=0",
            remedy="leave the group out: without GPUs a job runs on the system nodes; or set gpus_per_worker=1",
        )
    return Placement(group=None, pods=pods, gpus=0, share=cpu_share(request.cpus_per_worker), efa=0)


def _choose(request: JobRequest | ClusterRequest, target: Target, fit: _Fit) -> Placement:
    groups = {group.name: group for group in target.outputs.gpu_groups}
    if request.group is not None:
        if request.group not in groups:
            raise SettingsError(
                f"group={request.group!r}: stack {target.outputs.environment} has no such GPU group",
                remedy=nearest(request.group, groups) if groups else "set gpus_per_worker=0",
            )
        candidates = [groups[request.group]]
    else:
        # A request must name a Capacity Block, which is bought for a purpose and ends, or a group whose GPUs are shared.
        candidates = [one for one in groups.values() if one.drain_before is None and one.devices_per_gpu == 1]
    return _cheapest(request, candidates, fit, target)


def _cheapest(
    request: JobRequest | ClusterRequest, groups: Sequence[GpuGroupOutput], fit: _Fit, target: Target
) -> Placement:
    fitting, reasons = [], []
    for group in groups:
        try:
            fitting.append((group, fit(group)))
        except _Unfit as unfit:
            reasons.append(f"\n  {group.name} ({group.instance_type}): {unfit}")
    if not fitting:
        raise RefusedError(
            f"no GPU group of stack {target.outputs.environment} can take {request.name}:"
            f"{''.join(reasons) or ' it has none but Capacity Blocks and groups whose GPUs are shared'}",
            remedy="ask for less, name another group, or raise max_size in the environment's file",
        )
    return min(fitting, key=lambda pair: _cost(pair[0], pair[1], target.catalog))[1]


def _cost(group: GpuGroupOutput, placement: Placement, catalog: Catalog) -> tuple[float, int, str]:
    """Sort key: the price of the parts of nodes that are used, unknown prices last; then the number of pods; then the name."""
    price = catalog.find_instance(group.instance_type).usd_per_hour
    nodes = placement.pods * placement.gpus / group.gpus_per_node
    return (math.inf if price is None else price * nodes, placement.pods, group.name)


def _fit_job(request: JobRequest, group: GpuGroupOutput, catalog: Catalog) -> Placement:
    share = _share(request.cpus_per_worker, group, catalog)
    if group.devices_per_gpu > 1 and request.workers > 1:
        raise _Unfit(
            f"{group.devices_per_gpu} pods share each of its GPUs; NCCL supports one rank per GPU, not {request.workers} on shared ones"
        )
    nodes = math.ceil(request.workers / group.gpus_per_node)
    if nodes > group.max_nodes:
        raise _Unfit(
            f"{request.workers} GPUs need {nodes} nodes of {group.gpus_per_node}, it has at most {group.max_nodes}"
        )
    if request.workers % nodes:
        near = " or ".join(map(str, _even_counts(request.workers, group)))
        raise _Unfit(f"{request.workers} ranks do not divide evenly over {nodes} nodes; use {near}")
    gpus = request.workers // nodes
    efa = group.efa_per_node if nodes > 1 else 0
    return Placement(group=group, pods=nodes, gpus=gpus, share=share.times(gpus), efa=efa)


def _even_counts(workers: int, group: GpuGroupOutput) -> Iterator[int]:
    """The nearest numbers of ranks below and above that divide evenly over their nodes."""
    for counts in (range(workers - 1, 0, -1), range(workers + 1, group.gpus_per_node * group.max_nodes + 1)):
        yield from [n for n in counts if n % math.ceil(n / group.gpus_per_node) == 0][:1]


def _fit_cluster(request: ClusterRequest, group: GpuGroupOutput, catalog: Catalog) -> Placement:
    share = _share(request.cpus_per_worker, group, catalog)
    gpus = group.max_nodes * group.gpus_per_node
    if request.max_workers > gpus:
        raise _Unfit(f"max_workers={request.max_workers} needs as many GPUs, it has at most {gpus}")
    return Placement(group=group, pods=request.max_workers, gpus=1, share=share, efa=0)


def _share(cpus_per_worker: int, group: GpuGroupOutput, catalog: Catalog) -> Share:
    share = gpu_share(group, catalog=catalog)
    if share.cpus < cpus_per_worker:
        raise _Unfit(f"cpus_per_worker={cpus_per_worker} exceeds {share.cpus}, the cores per GPU")
    return share

"""Which nodes serve a request, how many pods it becomes, and how large each one is.

The ranks of a node share one pod. NCCL uses NVLink and shared memory only between processes that see each other's
memory, which pods under `restricted` do not (no hostIPC), and a pod with all GPUs of a node gets all its EFA interfaces.
So a job larger than a node takes equal parts of several nodes, one pod each, and a smaller job is one pod with a part of
a node. The same holds for each trial of a search; a pod has as many whole trials as its node can hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from infra.spec.catalog import Catalog
from infra.spec.compute_capability import FLOAT8, written
from infra.spec.errors import RefusedError, SettingsError
from infra.spec.outputs import GpuGroupOutput, TeamOutput
from infra.spec.section import nearest
from platform_charts.jobs.request import JobRequest, Target
from platform_charts.jobs.resources import Share, cpu_share, gpu_share


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Equal worker pods, all on nodes of one group: of which one, Kueue decides at admission.

    Attributes:
        groups: the GPU node groups that may run them, in the order in which Kueue tries them; none: the head nodes.
        pods: number of worker pods; of an elastic job, at first.
        gpus: GPUs of each pod.
        share: CPU and memory of each pod.
        efa: EFA interfaces of each pod; 0 where no group of ranks is in several pods.
        loader_cpus: cores of each pod's share that Ray must not give to ranks.
        left_out: the groups with the GPU model, or of the list, that may not run them, each with the reason.
        sizes: the numbers of pods that an elastic job may have, ascending, of which `pods` is the first; empty for another job.
    """

    groups: tuple[GpuGroupOutput, ...]
    pods: int
    gpus: int
    share: Share
    efa: int
    loader_cpus: int = 0
    left_out: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()

    @property
    def most_pods(self) -> int:
        """The largest number of worker pods that the job may have."""
        return self.sizes[-1] if self.sizes else self.pods

    @property
    def cache_gib(self) -> int:
        """Each pod's part of its node's NVMe disks in GiB, by its part of the GPUs; 0 where a group has no such disks."""
        parts = [one.cache_gib * self.gpus // (one.gpus_per_node * one.devices_per_gpu) for one in self.groups]
        return min(parts, default=0)

    @property
    def is_interruptible(self) -> bool:
        """Whether AWS may reclaim nodes of one of the groups with two minutes' notice."""
        return any(group.capacity_type == "SPOT" for group in self.groups)

    @property
    def is_fleeting(self) -> bool:
        """Whether EC2 ends nodes of one of the groups at a time of its own: spot nodes, and those of a Capacity Block."""
        return self.is_interruptible or any(group.drain_before is not None for group in self.groups)


class _Unfit(Exception):  # noqa: N818  # not an error: the next group may fit
    """Why a group cannot serve a request."""


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
        SettingsError: the stack has no such group, or none with the GPU model; or the queue tries groups in another order.
        RefusedError: the group, or every group, is too small; the message has the numbers.
    """
    if request.gpus_per_worker == 0:
        return _on_head_nodes(request)
    if request.gpu_model is not None:
        return _by_model(request, request.gpu_model, target)
    return _listed(request, target) if len(request.groups) > 1 else _choose(request, target)


def gpu_model(group: GpuGroupOutput, catalog: Catalog) -> str:
    """Model of a group's GPUs in lower case, e.g. a10g."""
    gpu = catalog.find_instance(group.instance_type).gpu
    assert gpu is not None, f"{group.name} is a GPU group"
    return gpu.model.lower()


def _on_head_nodes(request: JobRequest) -> Placement:
    if request.needs_cache:
        raise RefusedError(
            f"{request.name} copies its dataset to NVMe disks (data.cache), which the head nodes do not have",
            remedy="train on GPUs, or leave data.cache out and set data.path to a folder of the stack's file system",
        )
    if request.group is not None:
        raise SettingsError(
            f"group={request.group} has GPU nodes, but gpus_per_worker=0",
            remedy="leave the group out: without GPUs a job runs on the head nodes; or set gpus_per_worker=1",
        )
    share = cpu_share(request.cpus_per_worker)
    return Placement(groups=(), pods=request.ranks, gpus=0, share=share, efa=0, loader_cpus=request.loader_cpus)


def _choose(request: JobRequest, target: Target) -> Placement:
    groups = {group.name: group for group in target.outputs.gpu_groups}
    if request.group is not None:
        candidates = [_find_group(request.group, target)]
    else:
        # A request must name a Capacity Block, which is bought for a purpose and ends, or a group whose GPUs are shared.
        candidates = [one for one in groups.values() if one.drain_before is None and one.devices_per_gpu == 1]
    return _cheapest(request, candidates, target)


def _find_group(name: str, target: Target) -> GpuGroupOutput:
    groups = {group.name: group for group in target.outputs.gpu_groups}
    if name not in groups:
        raise SettingsError(
            f"group={name!r}: stack {target.outputs.environment} has no such GPU group",
            remedy=nearest(name, groups) if groups else "set gpus_per_worker=0",
        )
    return groups[name]


def _listed(request: JobRequest, target: Target) -> Placement:
    """The groups that a job lists, as far as they can run the same pods.

    A queue has one order for all its jobs (Kueue, "ResourceFlavor fungibility"), so a job lists its groups in this order.
    """
    listed = [_find_group(name, target) for name in request.groups]
    tried = [group for group in target.outputs.gpu_groups if group in listed]
    if listed != tried:
        order = ",".join(group.name for group in tried)
        raise SettingsError(
            f"group={request.group}: the queue tries these groups in the order {order}, each once",
            remedy=f"write group={order}, or change capacity_order in the environment's file",
        )
    return _same_pods(request, tried, target, what=f"none of the groups {request.group} of", is_listed=True)


def _by_model(request: JobRequest, model: str, target: Target) -> Placement:
    """The groups with that GPU model that can run the same pods."""
    having = [group for group in target.outputs.gpu_groups if gpu_model(group, target.catalog) == model]
    if not having:
        raise _no_such_model(model, target)
    return _same_pods(request, having, target, what=f"no group with GPU {model} of", is_listed=False)


def _same_pods(
    request: JobRequest, groups: Sequence[GpuGroupOutput], target: Target, *, what: str, is_listed: bool
) -> Placement:
    """The groups that can run the same pods.

    The first group that fits sets the number of pods and their GPUs, because a job's pods are made before Kueue chooses.
    Their cores and memory fit the smallest nodes; they get EFA interfaces if all groups have them.
    """
    fitting: list[Placement] = []
    reasons = []
    for group in groups:
        try:
            _check_choosable(group, is_spot_allowed=request.spot or is_listed)
            fits = (
                _fit_like(fitting[0], request, group, target.catalog)
                if fitting
                else _fit(request, group, target.catalog)
            )
            fitting.append(fits)
        except _Unfit as unfit:
            reasons.append(f"{group.name} ({group.instance_type}): {unfit}")
    if not fitting:
        raise RefusedError(
            f"{what} stack {target.outputs.environment} can take {request.name}:"
            + "".join(f"\n  {reason}" for reason in reasons),
            remedy="ask for less, allow spot nodes, name a group, or raise max_size in the environment's file",
        )
    return replace(
        fitting[0],
        groups=tuple(group for one in fitting for group in one.groups),
        share=Share(min(one.share.cpus for one in fitting), min(one.share.memory_gib for one in fitting)),
        efa=min(one.efa for one in fitting),
        left_out=tuple(reasons),
    )


def _no_such_model(model: str, target: Target) -> SettingsError:
    known = sorted({gpu_model(group, target.catalog) for group in target.outputs.gpu_groups})
    existing = {one.gpu.model.lower() for one in target.catalog.instances.values() if one.gpu is not None}
    remedy = f"one of {', '.join(known)}" if model in existing else nearest(model, known)
    return SettingsError(
        f"gpu_model={model!r}: stack {target.outputs.environment} has no group with such GPUs",
        remedy=remedy if known else "set gpus_per_worker=0",
    )


def _check_choosable(group: GpuGroupOutput, *, is_spot_allowed: bool) -> None:
    """Refuse groups that a job has to ask for."""
    if group.devices_per_gpu > 1:
        raise _Unfit("its GPUs are shared; only a job that names this group alone uses it")
    if group.capacity_type == "SPOT" and not is_spot_allowed:
        raise _Unfit("its nodes are spot, which the job does not allow")


def _cheapest(request: JobRequest, groups: Sequence[GpuGroupOutput], target: Target) -> Placement:
    fitting, reasons = [], []
    for group in groups:
        try:
            fitting.append((group, _fit(request, group, target.catalog)))
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


def _fit(request: JobRequest, group: GpuGroupOutput, catalog: Catalog) -> Placement:
    """As few pods as possible, on nodes of the group."""
    share = _share(request.cpus_per_worker, group, catalog)
    if group.devices_per_gpu > 1 and request.ranks > 1:
        raise _Unfit(
            f"{group.devices_per_gpu} pods share each of its GPUs; NCCL supports one rank per GPU, not {request.ranks} on shared ones"
        )
    _check_devices(request, group, catalog)
    nodes = math.ceil(request.workers / group.gpus_per_node)
    if nodes == 1:
        pods, gpus = _whole_groups(request, group)
        _check_nodes(math.ceil(pods / (group.gpus_per_node // gpus)), request, group)
        return Placement(groups=(group,), pods=pods, gpus=gpus, share=share.times(gpus), efa=0)
    _check_nodes(nodes * request.worker_groups, request, group)
    if request.workers % nodes:
        near = " or ".join(map(str, _even_counts(request.workers, group)))
        raise _Unfit(f"{request.workers} ranks do not divide evenly over {nodes} nodes; use {near}")
    gpus = request.workers // nodes
    return Placement(
        groups=(group,),
        pods=nodes * request.worker_groups,
        gpus=gpus,
        share=share.times(gpus),
        efa=group.efa_per_node,
    )


def _whole_groups(request: JobRequest, group: GpuGroupOutput) -> tuple[int, int]:
    """Number of equal pods, and their GPUs, for groups of ranks of which each fits on a node."""
    largest = group.gpus_per_node // request.workers
    each = max(count for count in range(1, largest + 1) if request.worker_groups % count == 0)
    return request.worker_groups // each, each * request.workers


def _fit_like(first: Placement, request: JobRequest, group: GpuGroupOutput, catalog: Catalog) -> Placement:
    """The pods of another group's placement, on nodes of this group, which may hold several of them."""
    share = _share(request.cpus_per_worker, group, catalog)
    if first.gpus > group.gpus_per_node:
        raise _Unfit(f"a pod of the job has {first.gpus} GPUs, its nodes have {group.gpus_per_node}")
    if group.network_layers != first.groups[0].network_layers:
        raise _Unfit(f"its topology differs from that of {first.groups[0].name}, and Kueue places a job by one of them")
    _check_devices(request, group, catalog)
    efa = min(first.efa, group.efa_per_node)
    per_node = min(group.gpus_per_node // first.gpus, group.efa_per_node // efa if efa else first.pods)
    _check_nodes(math.ceil(first.pods / per_node), request, group)
    return replace(first, groups=(group,), share=share.times(first.gpus), efa=efa)


def _check_devices(request: JobRequest, group: GpuGroupOutput, catalog: Catalog) -> None:
    if request.needs_cache and not group.cache_gib:
        raise _Unfit("its nodes have no room on NVMe disks for data.cache")
    capability = catalog.compute_capability(group.instance_type)
    assert capability is not None, f"{group.name} is a GPU group"
    if request.needs_float8 and capability < FLOAT8:
        raise _Unfit(
            f"precision.mode=fp8 needs GPUs of compute capability {written(FLOAT8)} or higher, its have {written(capability)}; "
            f"instance types that can: those of {', '.join(catalog.families_from(FLOAT8))}"
        )


def _check_nodes(nodes: int, request: JobRequest, group: GpuGroupOutput) -> None:
    if nodes > group.max_nodes:
        raise _Unfit(f"{_gpus(request)} need {nodes} nodes of {group.gpus_per_node}, it has at most {group.max_nodes}")


def _gpus(request: JobRequest) -> str:
    groups = f" ({request.worker_groups} x {request.workers})" if request.worker_groups > 1 else ""
    return f"{request.ranks} GPUs{groups}"


def _even_counts(workers: int, group: GpuGroupOutput) -> Iterator[int]:
    """The nearest numbers of ranks below and above that divide evenly over their nodes."""
    for counts in (range(workers - 1, 0, -1), range(workers + 1, group.gpus_per_node * group.max_nodes + 1)):
        yield from [n for n in counts if n % math.ceil(n / group.gpus_per_node) == 0][:1]


def _share(cpus_per_worker: int, group: GpuGroupOutput, catalog: Catalog) -> Share:
    """CPU and memory of a rank: those of its GPU. On a shared GPU its part of the memory, and at least the cores that it asks for."""
    share = gpu_share(group, catalog=catalog)
    if share.cpus < cpus_per_worker:
        raise _Unfit(f"cpus_per_worker={cpus_per_worker} exceeds {share.cpus}, the cores per GPU")
    cpus = max(cpus_per_worker, share.cpus // group.devices_per_gpu)
    return Share(cpus, share.memory_gib // group.devices_per_gpu)

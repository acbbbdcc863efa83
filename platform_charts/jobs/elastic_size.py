"""The pods of an elastic job: with how many it starts, and how many it may have."""

from __future__ import annotations

import math
from dataclasses import replace

from infra.spec.errors import RefusedError
from infra.spec.outputs import GpuGroupOutput
from platform_charts.jobs.placement import Placement, place_job
from platform_charts.jobs.request import JobRequest, Target


def place_any_job(request: JobRequest, target: Target) -> Placement:
    """Place the ranks of a job, elastic or not; raises as `place_job` and `place_elastic_job`."""
    return place_elastic_job(request, target) if request.sizes else place_job(request, target)


def place_elastic_job(request: JobRequest, target: Target) -> Placement:
    """Place an elastic job's ranks on nodes: a pod holds as many as that of a job with the fewest ranks.

    Its sizes are those that are whole pods, and for which the nodes suffice. If only one is left, the job is a fixed one.

    Raises:
        SettingsError: as of `place_job`.
        RefusedError: as of `place_job`; or Kueue assigns the nodes of the group; or its nodes have several EFA interfaces, of which a pod
            of the fewest ranks would take a part.
    """
    most = _most(request, target)
    fewest = replace(request, workers=request.sizes[0], sizes=())
    if len(most.groups) == 1:
        fewest = replace(fewest, group=most.groups[0].name, gpu_model=None, spot=False)
    placement = place_job(fewest, target)
    for group in placement.groups:
        _check_group(request, placement, group)
    ranks = placement.gpus or 1
    sizes = tuple(size // ranks for size in request.sizes if size % ranks == 0 and _has_room(size // ranks, placement))
    if len(sizes) == 1:
        return placement
    # Those of the fewest ranks may be one pod, which needs no interface. Pods that share a node with one interface have none.
    return replace(placement, sizes=sizes, efa=most.efa if placement.gpus == most.gpus else 0)


def _most(request: JobRequest, target: Target) -> Placement:
    """The placement of the most ranks that divide evenly over nodes of a group, which is the group to use."""
    for size in reversed(request.sizes[1:]):
        try:
            return place_job(replace(request, workers=size, sizes=()), target)
        except RefusedError:
            continue
    return place_job(replace(request, workers=request.sizes[0], sizes=()), target)


def _check_group(request: JobRequest, placement: Placement, group: GpuGroupOutput) -> None:
    span = f"{request.sizes[0]}-{request.workers}"
    if group.network_layers:
        raise RefusedError(
            f"scale.workers={span} on group {group.name}: Kueue chooses the nodes of its jobs by the network, and adds none to them",
            remedy="use a fixed number of workers, or a group without `topology: network`",
        )
    if group.efa_per_node > 1 and placement.gpus < group.gpus_per_node:
        raise RefusedError(
            f"scale.workers={span} on group {group.name}: its nodes have {group.efa_per_node} EFA interfaces, so a pod of an elastic job "
            f"takes all {group.gpus_per_node} GPUs of a node, not {placement.gpus}",
            remedy=f"use a fewest number of workers that is a multiple of {group.gpus_per_node}",
        )


def _has_room(pods: int, placement: Placement) -> bool:
    """Whether each of the groups has nodes for so many pods."""
    return all(
        math.ceil(pods / (group.gpus_per_node // placement.gpus)) <= group.max_nodes for group in placement.groups
    )

"""What a pod without a node asks for, and what the nodes of its group offer.

Members of a team may not list nodes. Sizes are those of the stack outputs and the catalogue, and the scheduler's message says how
many nodes of the group it has considered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from infra.spec.manifest import Manifest
from infra.spec.node_labels import GPU_RESOURCE, GROUP_LABEL, HEAD_GROUP
from platform_charts.jobs.request import Target
from platform_charts.jobs.resources import Share, gpu_share, node_share

_CONSIDERED = re.compile(r"0/(\d+) nodes are available")
_ELSEWHERE = re.compile(
    r"(\d+) node\(s\) (?:didn't match Pod's node affinity/selector|had untolerated taint\(s\)|were unschedulable)"
)
"""The scheduler's message (types.go, `FitError`), and its reasons for a node of another group, or not ready, at v1.36.0."""

_GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class NodeRoom:
    """What the nodes of a group offer to jobs.

    Attributes:
        group: name of the group.
        instance_type: type of its nodes.
        share: CPU and memory of an empty node, an estimate that errs on the small side.
        gpus: `nvidia.com/gpu` of a node.
        max_nodes: maximum number of nodes; None: the stack is of an earlier release, which does not say.
        setting: what limits them, in the environment's file.
    """

    group: str
    instance_type: str
    share: Share
    gpus: int
    max_nodes: int | None
    setting: str


def room_by_group(target: Target) -> dict[str, NodeRoom]:
    """What the nodes of each group of a stack offer, by the group's name."""
    outputs, catalog = target.outputs, target.catalog
    file = f"infra/environments/{outputs.environment}.yaml"
    found = {
        group.name: NodeRoom(
            group=group.name,
            instance_type=group.instance_type,
            share=gpu_share(group, catalog=catalog).times(group.gpus_per_node),
            gpus=group.gpus_per_node * group.devices_per_gpu,
            max_nodes=group.max_nodes,
            setting=f"max_size of GPU group {group.name} in {file}",
        )
        for group in outputs.gpu_groups
    }
    if outputs.head_instance_type is not None:
        found[HEAD_GROUP] = NodeRoom(
            group=HEAD_GROUP,
            instance_type=outputs.head_instance_type,
            share=node_share(outputs.head_instance_type, catalog=catalog),
            gpus=0,
            max_nodes=outputs.head_max_nodes,
            setting=f"head_nodes.max_size in {file}",
        )
    return found


def explain_unscheduled(pod: Manifest, message: str, rooms: Mapping[str, NodeRoom]) -> str:
    """What an unscheduled pod asks for, what its group offers, and what to do; empty if its group is not known.

    Args:
        pod: as the API server has it.
        message: the scheduler's.
        rooms: see `room_by_group`.
    """
    group = pod.get("spec", {}).get("nodeSelector", {}).get(GROUP_LABEL, "")
    if group not in rooms:
        return ""
    room, (cpus, memory_gib, gpus) = rooms[group], requests_of(pod)
    facts = (
        f"it asks for {_amounts(cpus, memory_gib, gpus)} on a node of group {group}, of which an empty one "
        f"({room.instance_type}) has {_amounts(room.share.cpus, room.share.memory_gib, room.gpus)} for jobs"
    )
    if cpus > room.share.cpus or memory_gib > room.share.memory_gib or gpus > room.gpus:
        return f"{facts}; ask for less, or use larger nodes"
    ready = _ready_nodes(message)
    return f"{facts}; {_count(ready, room.max_nodes)}{_remedy(room, ready)}"


def _count(ready: int | None, largest: int | None) -> str:
    """How many nodes there are, as far as that is known, as the beginning of a sentence."""
    if ready is None:
        return ""
    limit = "" if largest is None else f" of at most {largest}"
    return f"{ready}{limit} {'is' if ready == 1 else 'are'} ready; "


def _remedy(room: NodeRoom, ready: int | None) -> str:
    is_full = ready is not None and room.max_nodes is not None and ready >= room.max_nodes
    waits = "until other pods end" if is_full else "for the autoscaler or until other pods end"
    return f"use fewer workers, raise {room.setting}, or wait {waits}"


def _ready_nodes(message: str) -> int | None:
    """Nodes of the pod's group that take pods, from the scheduler's message; None if that has another form."""
    total = _CONSIDERED.search(message)
    if total is None:
        return None
    # What follows is about preemption, and counts nodes again.
    reasons = message.partition("preemption:")[0]
    return max(0, int(total[1]) - sum(int(count) for count in _ELSEWHERE.findall(reasons)))


def _amounts(cpus: float, memory_gib: float, gpus: int) -> str:
    of_gpus = f", {gpus} GPU{'s' * (gpus > 1)}" if gpus else ""
    return f"{cpus:g} CPU{'s' * (cpus != 1)}, {memory_gib:.4g} GiB of memory{of_gpus}"


def requests_of(pod: Manifest) -> tuple[float, float, int]:
    """CPUs, GiB of memory and GPUs that the scheduler reserves for a pod (Kubernetes, "Sidecar containers", resource sharing)."""
    cpus, memory, gpus = (_reserved(pod["spec"], name) for name in ("cpu", "memory", GPU_RESOURCE))
    return float(cpus), float(memory) / _GIB, int(gpus)


def _reserved(spec: Mapping[str, Any], resource: str) -> Decimal:
    """The sum of the containers and sidecars; more if an init container needs more while it runs, beside earlier sidecars."""
    containers = sum((_amount(one, resource) for one in spec["containers"]), Decimal())
    sidecars = largest_start = Decimal()
    for one in spec.get("initContainers", ()):
        if one.get("restartPolicy") == "Always":
            sidecars += _amount(one, resource)
        else:
            largest_start = max(largest_start, sidecars + _amount(one, resource))
    return max(containers + sidecars, largest_start)


def _amount(container: Mapping[str, Any], resource: str) -> Decimal:
    from kubernetes.utils.quantity import parse_quantity  # noqa: PLC0415 - not in the trainer's environment

    found: Decimal = parse_quantity(container.get("resources", {}).get("requests", {}).get(resource, "0"))
    return found

"""How long an update takes nodes away: how many it replaces at a time, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from infra.kube.api import KubernetesApi
from infra.lifecycle.rollout.plan import RollPlan

NodeCount = Mapping[str, int]
"""Number of nodes by the name of their EKS managed node group."""

_MANAGED = "eks.amazonaws.com/nodegroup"
"""Label of a node: its managed node group."""

_MINUTES = 10
"""Estimate of the time from the eviction of a node's pods to a node in its place that is ready: instance, driver, images."""


def count_nodes(api: KubernetesApi) -> NodeCount:
    """The nodes that run now.

    Raises:
        ApiError: the API server rejects the request.
        ConnectionLostError: it does not answer.
    """
    return Counter(one["metadata"]["labels"][_MANAGED] for one in api.items("v1", "Node", labels=_MANAGED))


def absences(roll: RollPlan, preview: Mapping[str, Any], nodes: NodeCount) -> Iterator[str]:
    """What happens to the nodes of each group, and for how long.

    Args:
        roll: the groups whose nodes the update ends.
        preview: the part of the preview's document with these groups.
        nodes: how many nodes each managed node group has.
    """
    records = {str(one["urn"]).rpartition("::")[2]: one for one in preview.get("steps") or () if _is_node_group(one)}
    for group in roll.rolling:
        yield f"{group}: {_absence(group.effect, records[group.resource], nodes)}"


def _absence(effect: str, record: Mapping[str, Any], nodes: NodeCount) -> str:
    count = nodes.get(_physical_name(record), 0)
    counted = f"{count} node{'s' * (count != 1)}"
    if not count:
        return "no node runs"
    if effect == "may shrink":
        return f"{counted}, of which those above the new size leave for good"
    if effect == "is deleted":
        return f"{counted}, which leave for good"
    if effect == "is replaced":
        return f"{counted}, all at once, for about {_MINUTES} minutes"
    update = ((record.get("newState") or {}).get("inputs") or {}).get("updateConfig") or {}
    at_a_time = max(1, count * int(update.get("maxUnavailablePercentage") or 0) // 100)
    minutes = ceil(count / at_a_time) * _MINUTES
    is_minimal = update.get("updateStrategy") == "MINIMAL"
    order = f"each is away for about {_MINUTES}" if is_minimal else "new ones start before old ones leave"
    return f"{counted}, {at_a_time} at a time, about {minutes} minutes; {order}"


def _physical_name(record: Mapping[str, Any]) -> str:
    """Name of the managed node group in EKS: the second part of the resource's ID."""
    return str((record.get("oldState") or {}).get("id") or "").partition(":")[2]


def _is_node_group(record: Mapping[str, Any]) -> bool:
    return "aws:eks/nodeGroup:NodeGroup::" in str(record["urn"])

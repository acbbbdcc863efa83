"""Nodes and pods as JSON from the API server: what they say, and the patch that puts a decision into effect; pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .health import CONDITIONS, Decision, Diagnosis, NodeFacts, Reason

Object = Mapping[str, Any]
"""An object as JSON from the API server."""

_LONGEST_MESSAGE = 400
_OURS: frozenset[str] = frozenset(Reason.__args__)  # type: ignore[attr-defined]  # typing.Literal's values
"""Values of the taint that the gate sets and removes. A person's own, e.g. `manual`, stays."""


class Keys(NamedTuple):
    """Keys of taints and labels.

    Attributes:
        start_up_taint: taint of a node that has never taken a job.
        unhealthy_taint: taint of a node that takes no new jobs, and annotation that says why.
        group_label: label with the name of a node's group.
        diagnose_label: label of a node that the diagnostics have to run on.
    """

    start_up_taint: str
    unhealthy_taint: str
    group_label: str
    diagnose_label: str


@dataclass(frozen=True, kw_only=True)
class Group:
    """What is expected of the nodes of a group.

    Attributes:
        devices: number of allocatable devices by resource. More are allowed: time slices and MIG slices multiply GPUs.
        is_diagnosed: its nodes take jobs once they have passed the diagnostics.
        parts: names of its managed node groups, one per zone.
    """

    devices: Mapping[str, int]
    is_diagnosed: bool = False
    parts: Sequence[str] = ()


def facts_of(node: Object, group: Group, keys: Keys, diagnosis: Diagnosis | None) -> NodeFacts:
    """What a node says.

    Args:
        node: the node.
        group: its group.
        keys: keys of taints and labels.
        diagnosis: outcome of the diagnostics that run on it; None: none do.
    """
    is_starting = keys.start_up_taint in _taints(node)
    is_under_diagnosis = is_starting or keys.diagnose_label in node["metadata"].get("labels", {})
    status = node.get("status", {})
    allocatable = status.get("allocatable", {})
    return NodeFacts(
        is_starting=is_starting,
        missing=tuple(
            f"{resource} {allocatable.get(resource, '0')} of {quantity}"
            for resource, quantity in group.devices.items()
            if int(allocatable.get(resource, "0")) < quantity
        ),
        failed_conditions=tuple(
            (CONDITIONS[one["type"]], f"{one['type']}: {one.get('reason', '')} {one.get('message', '')}".strip())
            for one in status.get("conditions", ())
            if one["type"] in CONDITIONS and one["status"] == "False"
        ),
        diagnosis=(diagnosis or Diagnosis("pending")) if group.is_diagnosed and is_under_diagnosis else None,
    )


def diagnosis_of(pod: Object) -> Diagnosis:
    """The outcome in a pod of the diagnostics, which its first init container has as its exit status.

    A failure holds until a repetition passes.
    """
    statuses = pod.get("status", {}).get("initContainerStatuses") or [{}]
    for state in ("state", "lastState"):
        ended = statuses[0].get(state, {}).get("terminated")
        if ended is not None:
            if ended["exitCode"] == 0:
                return Diagnosis("passed")
            return Diagnosis("failed", f"exit status {ended['exitCode']}: {ended.get('message', '')}".rstrip(": \n"))
    return Diagnosis("pending")


def patch_of(node: Object, decision: Decision, keys: Keys) -> list[dict[str, Any]]:
    """JSON patch (RFC 6902) that puts a decision into effect, and fails if the node has changed since it was read.

    Empty if the node is as decided.
    """
    metadata = node["metadata"]
    taints, labels = list(node["spec"].get("taints", ())), dict(metadata.get("labels", {}))
    annotations = dict(metadata.get("annotations", {}))
    label = {keys.diagnose_label: "true"} if decision.needs_diagnostics else {}
    why = {keys.unhealthy_taint: "; ".join(decision.details)[:_LONGEST_MESSAGE]} if decision.reason else {}
    parts: tuple[tuple[str, object, object], ...] = (
        ("/spec/taints", taints, _taints_after(taints, decision, keys)),
        ("/metadata/labels", labels, _without(labels, keys.diagnose_label) | label),
        ("/metadata/annotations", annotations, _without(annotations, keys.unhealthy_taint) | why),
    )
    changes = [{"op": "add", "path": path, "value": after} for path, before, after in parts if after != before]
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}
    return [test, *changes] if changes else []


def _without(pairs: Mapping[str, str], key: str) -> dict[str, str]:
    return {name: value for name, value in pairs.items() if name != key}


def _taints(node: Object) -> set[str]:
    return {one["key"] for one in node["spec"].get("taints", ())}


def _taints_after(taints: Sequence[Object], decision: Decision, keys: Keys) -> list[Object]:
    """Taints that a decision leaves, and its own."""
    if decision.state == "starting":
        return list(taints)
    kept = [
        one
        for one in taints
        if one["key"] != keys.start_up_taint
        and (one["key"] != keys.unhealthy_taint or one.get("value") in {decision.reason, *_foreign(one)})
    ]
    is_marked = any(one["key"] == keys.unhealthy_taint for one in kept)
    if decision.reason is None or is_marked:
        return kept
    return [*kept, {"key": keys.unhealthy_taint, "value": decision.reason, "effect": "NoSchedule"}]


def _foreign(taint: Object) -> set[str]:
    value = taint.get("value", "")
    return set() if value in _OURS else {value}

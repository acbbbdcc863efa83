"""The policy: from what is known about a node to what is decided about it; pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

State = Literal["healthy", "starting", "unhealthy"]
Reason = Literal["hardware", "network", "diagnostics", "devices"]

CONDITIONS: Mapping[str, Reason] = {"AcceleratedHardwareReady": "hardware", "NetworkingReady": "network"}
"""Node conditions of EKS's node monitoring agent that concern jobs, False on a sick node (eks-node-monitoring-agent,
pkg/conditions). EKS repairs a node whose first one is False after 10 minutes, the second one after 30 (EKS user guide,
"Automatically repair nodes in EKS clusters")."""


class Diagnosis(NamedTuple):
    """Outcome of a node's diagnostics, with the message of a failure."""

    outcome: Literal["pending", "passed", "failed"]
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """What is known about a node.

    Attributes:
        is_starting: it has the start-up taint, so it has never taken a job.
        missing: descriptions of devices that it should offer and does not.
        failed_conditions: the conditions of `CONDITIONS` that are False, with their messages.
        diagnosis: outcome of its diagnostics; None if it needs none, because it has passed or its group is not diagnosed.
    """

    is_starting: bool
    missing: tuple[str, ...] = ()
    failed_conditions: tuple[tuple[Reason, str], ...] = ()
    diagnosis: Diagnosis | None = None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What is decided about a node.

    Attributes:
        state: healthy: takes jobs; starting: not yet; unhealthy: no new jobs, and those that run stay.
        reason: why it is unhealthy; None otherwise.
        details: what a starting node waits for, or what is wrong with an unhealthy one.
        needs_diagnostics: the diagnostics have to run on it.
    """

    state: State
    reason: Reason | None = None
    details: tuple[str, ...] = ()
    needs_diagnostics: bool = False


def decide(node: NodeFacts) -> Decision:
    """Decide about a node.

    A sick node that is still starting becomes unhealthy: the autoscaler waits for a starting node, and would start no other one
    for the pending job.
    """
    diagnosis = node.diagnosis
    wrong = list(_wrong(node))
    if wrong:
        return Decision(
            state="unhealthy",
            reason=wrong[0][0],
            details=tuple(detail for _, detail in wrong),
            needs_diagnostics=diagnosis is not None and diagnosis.outcome != "passed",
        )
    waiting = (*node.missing, *(["diagnostics"] if diagnosis is not None and diagnosis.outcome == "pending" else []))
    if waiting:
        return Decision(state="starting", details=waiting, needs_diagnostics=diagnosis is not None)
    return Decision(state="healthy")


def _wrong(node: NodeFacts) -> Iterator[tuple[Reason, str]]:
    yield from node.failed_conditions
    if node.diagnosis is not None and node.diagnosis.outcome == "failed":
        yield "diagnostics", node.diagnosis.message
    if not node.is_starting:
        if node.diagnosis is not None and node.diagnosis.outcome == "pending":
            yield "diagnostics", "not passed yet"
        yield from (("devices", one) for one in node.missing)

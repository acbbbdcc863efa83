"""Why the pods of a job are not running, in one line, from their status and events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from infra.spec.manifest import Manifest
from training.cluster.node_room import NodeRoom, explain_unscheduled
from training.cluster.objects import conditions, has_condition, one_line

_HARMLESS = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons of a waiting container in every starting pod."""

_SCALING = "TriggeredScaleUp"

_GATED = "SchedulingGated"
"""Reason of a pod that the scheduler must not place yet: of an elastic job, until Kueue has admitted it."""

_NOT_LISTENING = "connection refused"
"""In the message of a probe that failed because the program has not opened its port yet, as in every starting pod."""

_PREEMPTION = re.compile(r"\.[^.]*preemption: .*", re.DOTALL)
"""The part of the scheduler's message about the pods that it could have evicted."""

_LONGEST_MESSAGE = 400

_NO_CONFIG_MAP = re.compile(r'configmaps? "\S+-(?P<of>settings|code)(-\d+)?" not found')
"""The kubelet's message for a ConfigMap of a job that its pods cannot mount."""

_RESTORED = {"settings": "submit it again", "code": "resume it with CODE=folder"}


def waiting_reason(
    pods: Sequence[Manifest], events: Sequence[Manifest], rooms: Mapping[str, NodeRoom] | None = None
) -> str:
    """The reason why the pods wait, the most serious first; empty if all are ready without a warning.

    Args:
        pods: the job's pods as the API server has them.
        events: events of the job, its cluster and its pods.
        rooms: what the nodes of each group offer; without it a pod without a node has the scheduler's message only.
    """
    kept = [
        pod for pod in pods if "deletionTimestamp" not in pod["metadata"]
    ]  # others are of a cluster that was replaced
    for found in (_container_problems(kept), _warnings(kept, events), _unscheduled(kept, events, rooms or {})):
        reason = next(found, "")
        if reason:
            return reason
    return _count(kept)


def _container_problems(pods: Iterable[Manifest]) -> Iterator[str]:
    """Containers that cannot start, or that have exited with an error."""
    for pod in pods:
        for container in _containers(pod):
            state = container.get("state") or {}
            waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
            place = f"pod {_name(pod)}, container {container['name']}"
            if waiting.get("reason", "ContainerCreating") not in _HARMLESS:
                last = (container.get("lastState") or {}).get("terminated") or {}
                # What the container said when it ended explains more than that it is started again.
                message = _exit(last) if last.get("message") else waiting.get("message") or _exit(last)
                yield f"{place}: {_join(waiting['reason'], message)}"
            elif ended.get("exitCode"):
                yield f"{place}: {_exit(ended)}"


def _warnings(pods: Iterable[Manifest], events: Iterable[Manifest]) -> Iterator[str]:
    """The newest Warning; FailedScheduling of an existing pod is left to `_unscheduled`, whose condition is newer."""
    existing = {_name(pod) for pod in pods}
    warnings = [
        event
        for event in events
        if event.get("type") == "Warning"
        and not (event.get("reason") == "FailedScheduling" and event["involvedObject"].get("name") in existing)
        and not (event.get("reason") == "Unhealthy" and _NOT_LISTENING in event.get("message", ""))
    ]
    for event in sorted(warnings, key=event_time, reverse=True):
        about = event.get("involvedObject") or {}
        what = f"{str(about.get('kind', 'object')).lower()} {about.get('name', '')}"
        yield f"{what}: {_join(event.get('reason', ''), event.get('message', ''))}{_remedy(event)}"


def _remedy(event: Manifest) -> str:
    """What to do about a warning, to append to it."""
    gone = _NO_CONFIG_MAP.search(event.get("message", ""))
    return f"; it was deleted: stop the job and {_RESTORED[gone['of']]}" if gone else ""


def _unscheduled(pods: Iterable[Manifest], events: Iterable[Manifest], rooms: Mapping[str, NodeRoom]) -> Iterator[str]:
    """Pods without a node; for some the autoscaler is adding one, and some must not have one yet."""
    scaling_up = {
        (event.get("involvedObject") or {}).get("name") for event in events if event.get("reason") == _SCALING
    }
    without_node = [(pod, condition) for pod in pods for condition in conditions(pod) if _is_unscheduled(condition)]
    unscheduled = [(pod, condition) for pod, condition in without_node if condition.get("reason") != _GATED]
    stuck = [(pod, condition) for pod, condition in unscheduled if _name(pod) not in scaling_up]
    for pod, condition in stuck:
        message = condition.get("message", "")
        explained = explain_unscheduled(pod, message, rooms)
        said = _PREEMPTION.sub("", message) if explained else message
        yield "; ".join(filter(None, (f"pod {_name(pod)}: {_join(condition.get('reason', ''), said)}", explained)))
    if unscheduled:
        yield f"a node is being added for {_pods(len(unscheduled))}"
    if gated := len(without_node) - len(unscheduled):
        yield f"Kueue has yet to admit {_pods(gated)}"


def _pods(number: int) -> str:
    return f"{number} pod{'s' * (number != 1)}"


def _count(pods: Sequence[Manifest]) -> str:
    waiting = [pod for pod in pods if not is_ready(pod)]
    return f"{len(pods) - len(waiting)} of {len(pods)} pods ready" if waiting else ""


def is_ready(pod: Manifest) -> bool:
    """Whether the pod is ready, or has succeeded."""
    if (pod.get("status") or {}).get("phase") == "Succeeded":
        return True
    return has_condition(pod, "Ready")


def event_time(event: Manifest) -> str:
    """When an event last happened, as a string that sorts by time."""
    series = event.get("series") or {}
    return str(
        event.get("lastTimestamp")
        or series.get("lastObservedTime")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or ""
    )


def _containers(pod: Manifest) -> list[dict[str, Any]]:
    status = pod.get("status") or {}
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _is_unscheduled(condition: dict[str, Any]) -> bool:
    return condition.get("type") == "PodScheduled" and condition.get("status") == "False"


def _exit(terminated: dict[str, Any]) -> str:
    if not terminated:
        return ""
    code = f"exited with code {terminated.get('exitCode')}"
    reason = terminated.get("reason", "Error")
    return _join(code if reason == "Error" else f"{code} ({reason})", terminated.get("message", ""))


def _join(reason: str, message: str) -> str:
    """Reason and message, the message on one line and truncated."""
    shown = one_line(message, longest=_LONGEST_MESSAGE)
    return f"{reason}: {shown}" if reason and shown else reason or shown


def _name(pod: Manifest) -> str:
    return str(pod["metadata"]["name"])

"""Evidence of what went wrong, in pods, events and the trainer's reports: a rule for each kind; pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from observability.postmortem.case import Case
from observability.postmortem.record import PodRecord
from observability.postmortem.rule import RESUME, Cause, Rule

_DISRUPTIONS = {
    "PreemptionByScheduler": ("preemption", "was preempted on node {node} by a pod of higher priority"),
    "DeletionByTaintManager": ("node lost", "was deleted because its node {node} was lost"),
    "DeletionByPodGC": ("node lost", "was deleted because its node {node} was lost and no longer exists"),
    "EvictionByEvictionAPI": ("drain", "was evicted because its node {node} was drained"),
    "TerminationByKubelet": ("node shutdown", "was ended by its node {node}, which shut down or ran out of a resource"),
}
"""Reasons of the condition DisruptionTarget (Kubernetes, "Pod disruption conditions")."""

_OF_SPOT = frozenset({"node lost", "drain", "node shutdown"})

_IMAGES = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})

_HARMLESS = frozenset({"ContainerCreating", "PodInitializing", ""})

_HINDRANCES = frozenset(
    {"FailedScheduling", "FailedMount", "FailedAttachVolume", "FailedCreate", "FailedCreatePodSandBox"}
)

_TEXTS = (
    (r"did not answer within|recovery\.step_deadline", "hang", "its log and stack name the line in which it hangs"),
    (r"No space left on device|Disk quota exceeded", "disk full", "free space, or keep fewer checkpoints"),
    (r"CUDA out of memory|OutOfMemoryError", "GPU memory", "lower loop.global_batch or raise loop.accumulation"),
    (r"was killed by SIGKILL", "killed", "often the kernel's out-of-memory killer: give the ranks more memory"),
    (r"was killed by SIG", "crash", "native code crashed: the stack in failures/ names the line"),
    (r"DeviceError", "hardware", "take the node out of service, and look for its errors"),
    (r": its node is gone", "node lost", "its node's events say why it went"),
    (r"too few resources for the ranks", "not scheduled", "ask for less, or add nodes"),
    (r"died without reporting", "rank lost", "often the out-of-memory killer, or its node was lost"),
    (r"NCCL|Dist(?:Backend|Network|Store)?Error|gloo", "connection", "look for a rank or a node that was lost before"),
    (r"ended with exit code", "exit", "an exception reports an error; sys.exit and os._exit do not"),
    (r"rank \d+ failed: ", "exception", "the traceback is in the log"),
)
"""What the trainer writes (`training.failures`), the kind of the failure, and what to do where it advises nothing itself."""


def _memory(case: Case) -> Iterator[Cause]:
    for pod in _pods(case):
        for container, end in pod.ends:
            if end.reason == "OOMKilled":
                yield Cause(
                    kind="memory",
                    sentence=f"{_pod(pod)}, container {container.name}: {end}: it used more memory than its limit",
                    remedy="more memory for each rank, a smaller loop.global_batch, or fewer loader workers",
                    time=end.finished,
                )


def _evicted(case: Case) -> Iterator[Cause]:
    for pod in _pods(case):
        if pod.reason == "Evicted":
            yield Cause(
                kind="eviction",
                sentence=f"{_pod(pod)} was evicted by its node {pod.node}: {pod.message or 'a resource ran out'}",
                remedy="ask for what it needs: the message names the resource",
                time=pod.ended or pod.gone or pod.started,
            )


def _disrupted(case: Case) -> Iterator[Cause]:
    for pod in _pods(case):
        for one in pod.disruptions:
            kind, text = _DISRUPTIONS.get(one.reason, ("disruption", f"was ended: {one.reason}"))
            sentence, remedy = f"{_pod(pod)} {text.format(node=pod.node)}", RESUME
            if kind in _OF_SPOT and pod.capacity == "spot":
                kind, sentence = "spot", f"{sentence}, a spot node, which AWS may reclaim at any time"
                remedy = f"{RESUME}; on-demand capacity is not reclaimed"
            yield Cause(kind=kind, sentence=sentence, remedy=remedy, time=one.time)


def _lost_node(case: Case) -> Iterator[Cause]:
    """A pod that ended while its node was silent, or gone before anybody asked the pod to end."""
    for pod in _pods(case):
        is_lost = pod.node_state == "not ready" or (pod.node_state == "gone" and pod.asked_to_end is None)
        if is_lost and not pod.disruptions and (pod.ends or pod.gone):
            is_spot = pod.capacity == "spot"
            state = "was gone" if pod.node_state == "gone" else "did not answer"
            yield Cause(
                kind="spot" if is_spot else "node lost",
                sentence=f"{_pod(pod)} ended while its node {pod.node}{', a spot node,' if is_spot else ''} {state}",
                remedy=RESUME,
                time=min((end.finished for _, end in pod.ends if end.finished), default=pod.gone),
            )


def _image(case: Case) -> Iterator[Cause]:
    for pod in _pods(case):
        for container in pod.containers:
            if container.reason in _IMAGES and container.state == "waiting":
                yield Cause(
                    kind="image",
                    sentence=f"{_pod(pod)}, container {container.name}: {container.reason}: {container.message}",
                    remedy="check that the image exists: make image PUSH=1 ENV=…",
                    time=pod.scheduled or pod.created,
                )


def _hindered(case: Case) -> Iterator[Cause]:
    """What kept pods from starting; it explains nothing once the driver has run."""
    if case.record is None or case.record.driver_started is not None:
        return
    warnings = [one for one in case.record.events.values() if one.reason in _HINDRANCES and one.type == "Warning"]
    for event in sorted(warnings, key=lambda one: str(one.last), reverse=True)[:1]:
        remedy = "wait for a node, or choose another group" if event.reason == "FailedScheduling" else ""
        yield Cause(
            kind="not scheduled" if event.reason == "FailedScheduling" else "not started",
            sentence=f"{event.object}: {event.reason}: {event.message}",
            remedy=remedy,
            time=event.first,
        )
    for pod in _pods(case):
        for one in pod.containers:
            if one.state == "waiting" and one.reason not in _HARMLESS | _IMAGES:
                yield Cause(
                    kind="not started", sentence=f"{_pod(pod)}, container {one.name}: {one.reason}: {one.message}"
                )


def _reported(case: Case) -> Iterator[Cause]:
    """What the trainer says. Of a run the last report counts, because it recovered from the others."""
    for report in case.reports[-1:]:
        kind, advice = next(
            ((kind, advice) for text, kind, advice in _TEXTS if re.search(text, report.text)), ("error", "")
        )
        remedy = report.remedy or advice
        yield Cause(kind=kind, sentence=report.text, remedy=remedy, time=report.time)


def _exited(case: Case) -> Iterator[Cause]:
    """A container of Ray that ended with an error; a submitter's status only repeats the driver's."""
    for pod in _pods(case):
        for container, end in pod.ends:
            if pod.kind != "submitter" and end.reason != "OOMKilled":
                said = f": {end.message}" if end.message else ""
                yield Cause(
                    kind="container",
                    sentence=f"{_pod(pod)}, container {container.name}: {end}{said}",
                    remedy="its last log lines say more",
                    time=end.finished,
                )


EVIDENCE: Sequence[Rule] = (_memory, _evicted, _disrupted, _lost_node, _image, _hindered, _exited, _reported)
WAITING: Sequence[Rule] = (_image, _hindered)


def _pod(pod: PodRecord) -> str:
    return f"pod {pod.name}"


def _pods(case: Case) -> list[PodRecord]:
    return case.record.last_pods if case.record else []

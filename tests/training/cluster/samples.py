"""Minimal objects of a job in each of its states."""

from __future__ import annotations

from infra.spec.manifest import Manifest

JOB_UID = "11111111-1111-4111-8111-111111111111"


def ray_job(deployment: str = "", driver: str = "", *, suspend: bool = False, **status: object) -> Manifest:
    """A RayJob with the status that KubeRay writes."""
    return {
        "metadata": {"name": "digits", "namespace": "research", "uid": JOB_UID},
        "spec": {"suspend": suspend},
        "status": {"jobDeploymentStatus": deployment, "jobStatus": driver, **status},
    }


def workload(
    name: str = "rayjob-digits-1",
    *,
    active: bool = True,
    priority: int = 0,
    created: str = "2026-11-21T08:00:00Z",
    **states: str,
) -> Manifest:
    """A Workload; `states` are the messages of conditions; a leading `!` makes a condition false."""
    conditions = [
        {"type": kind, "status": "False" if message.startswith("!") else "True", "message": message.removeprefix("!")}
        for kind, message in states.items()
    ]
    return {
        "metadata": {"name": name, "namespace": "research", "creationTimestamp": created},
        "spec": {"active": active, "priority": priority, "queueName": "research"},
        "status": {"conditions": conditions},
    }


def pod(name: str = "digits-head", *, phase: str = "Pending", **status: object) -> Manifest:
    return {"metadata": {"name": name}, "status": {"phase": phase, **status}}


def waiting_pod(reason: str, message: str = "", *, name: str = "digits-head", **more: object) -> Manifest:
    """A pod with a container that does not start."""
    waiting = {"reason": reason, **({"message": message} if message else {})}
    return pod(name, containerStatuses=[{"name": "ray-head", "state": {"waiting": waiting}, **more}])


def unscheduled_pod(message: str, *, name: str = "digits-head", reason: str = "Unschedulable") -> Manifest:
    """A pod that the scheduler cannot place, or must not."""
    return pod(name, conditions=[{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}])


def ready_pod(name: str) -> Manifest:
    return pod(name, phase="Running", conditions=[{"type": "Ready", "status": "True"}])


def event(
    reason: str,
    message: str,
    *,
    about: str = "digits-head",
    kind: str = "Pod",
    type_: str = "Warning",
    at: str = "08:00:00",
) -> Manifest:
    return {
        "metadata": {"name": f"{about}.1", "creationTimestamp": f"2026-11-21T{at}Z"},
        "type": type_,
        "reason": reason,
        "message": message,
        "involvedObject": {"kind": kind, "name": about},
        "lastTimestamp": f"2026-11-21T{at}Z",
    }

"""Why a job does not run, from its RayJob and its Workload; pure functions.

`make jobs` also reads pods and events, per team. That would be too much to read, and to be allowed to read, for all teams.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .topology import NO_ROOM, needs_of, with_needs

Object = Mapping[str, Any]

ENDED = frozenset({"Complete", "Failed", "ValidationFailed"})
"""Deployment states of a RayJob that is over (KubeRay 1.6.2, rayjob_types.go, `IsJobDeploymentTerminal`)."""

_LONGEST = 400
"""Characters of a reason, as in `make jobs`: Kueue's names every resource that is short."""

_EXIT_CODE = re.compile(r"entrypoint command failed with exit code (-?\d+)")
"""What Ray's job supervisor reports for a failed driver, before the last lines of its log; KubeRay copies it into the message."""

_INTERRUPTED = 130
"""Exit status of a driver that saved its state and stopped (`infra.spec.errors.ExitStatus`)."""

_OTHER_FLAVOR = re.compile(
    r"(?:flavor \S+ doesn't match node affinity|untolerated taint \{[^}]*\} in flavor [^\s,]+"
    r'|Flavor "[^"]+" does not support TopologyAwareScheduling)(?:, |$)'
)
"""Kueue's message for each flavor that a job did not request, around the one for the flavor that it waits for."""

_NO_TOPOLOGY = "does not support TopologyAwareScheduling"
"""What Kueue says of a group without a topology. If it says nothing else, its last attempt has tried the job's group: the next one
tries the flavors after it, and reports those only."""

_RETURN_GATE = "ray-train-platform/quota-return"
"""Gate of a job whose team has lent quota, until `job_sizer` has made elastic jobs return it."""

_DEACTIVATED = "The workload is deactivated"
"""Kueue's message for a Workload that was stopped; `… due to REASON` if Kueue did that (workload_controller.go at v0.19.2)."""


def reason_of(job: Object, workload: Object | None) -> str | None:
    """Why a job does not run, in one line; None if it runs, is done, or nobody has a reason.

    Args:
        job: the RayJob.
        workload: its Workload; None before Kueue has seen the job.
    """
    status = job.get("status") or {}
    deployment = status.get("jobDeploymentStatus", "")
    if "deletionTimestamp" in job["metadata"]:
        return None
    if deployment in ENDED:
        return _ending(status)
    if workload is not None and not workload["spec"].get("active", True):
        evicted = _condition(workload, "Evicted")
        is_kueues = evicted.get("status") == "True" and f"{_DEACTIVATED} due to" in evicted.get("message", "")
        return _line(evicted["message"]) if is_kueues else "stopped"
    if job["spec"].get("suspend") or deployment in {"Suspending", "Suspended"}:
        return None if workload is None else _pending(workload)
    if deployment == "Retrying":
        return _line(status.get("message"))
    return _starting(status.get("rayClusterStatus") or {}) if deployment == "Initializing" else None


def _ending(status: Object) -> str | None:
    """Why a job that is over is not done."""
    code = _EXIT_CODE.search(status.get("message", ""))
    if status.get("jobStatus") == "STOPPED" or (code and int(code[1]) == _INTERRUPTED):
        return "stopped"
    return f"the driver exited with code {code[1]}" if code else _line(status.get("reason"), status.get("message"))


def _pending(workload: Object) -> str | None:
    """Why a queued job was evicted, and which quota it lacks; None once it is admitted."""
    if _condition(workload, "Admitted").get("status") == "True":
        return None
    lacks, evicted = (_condition(workload, kind) for kind in ("QuotaReserved", "Evicted"))
    message = lacks.get("message", "")
    if _RETURN_GATE in message:
        return "elastic jobs of other teams are returning GPUs of the team's quota"
    requested = _OTHER_FLAVOR.sub("", message).removesuffix(", ")
    if not requested.endswith(": "):
        message = with_needs(requested, workload)
    elif _NO_TOPOLOGY in message:
        message = f"{requested}{NO_ROOM} {needs_of(requested, workload)}"
    before = evicted.get("message", "") if evicted.get("status") == "True" else ""
    parts = [] if before.startswith(_DEACTIVATED) else [before]
    return _line("; ".join(part for part in (*parts, message) if part))


def _starting(cluster: Object) -> str | None:
    """What the pods of an admitted job wait for, as far as KubeRay says it."""
    head = _condition({"status": cluster}, "HeadPodReady")
    if head.get("status") == "False" and head.get("message"):
        return _line("head not ready", head["message"])
    desired, ready = cluster.get("desiredWorkerReplicas", 0), cluster.get("readyWorkerReplicas", 0)
    return f"{ready} of {desired} workers ready" if ready < desired else None


def _condition(found: Object, kind: str) -> Object:
    conditions: Sequence[Object] = (found.get("status") or {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == kind), {})


def _line(*parts: str | None) -> str | None:
    """The parts on one line, truncated to what a table can show; None if all are empty."""
    text = " ".join(": ".join(part for part in parts if part).split())
    return (text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…") or None

"""What one occurrence of a schedule submits, and what happens to the ones before it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

Manifest = dict[str, Any]
"""An object as JSON from the API server."""

Concurrency = Literal["forbid", "replace", "allow"]
"""What happens while an earlier occurrence has not ended: skip this one, stop the earlier one, or run both."""

_ENDED = frozenset({"Complete", "Failed", "ValidationFailed"})
"""`jobDeploymentStatus` of a RayJob that KubeRay no longer acts on (ray-operator/apis/ray/v1/rayjob_types.go)."""

_TIME = "%Y%m%d-%H%M"


class Plan(NamedTuple):
    """What to do.

    Attributes:
        submits: whether this occurrence is submitted.
        stops: RayJobs to stop first.
    """

    submits: bool
    stops: tuple[Manifest, ...]


def occurrence_name(schedule: str, job: str) -> str:
    """Name of an occurrence: the schedule's and the time in UTC that it was due at, e.g. `nightly-20261122-0200`.

    A CronJob names its Jobs NAME-MINUTES, with the minutes since 1970 (kubernetes, cronjob/utils.go, getJobName), so a pod that
    is started again for the same Job finds the occurrence that it has submitted.

    Args:
        schedule: name of the schedule, which is the CronJob's.
        job: name of the Job.

    Raises:
        ValueError: the Job is not one that the CronJob started at a time of its schedule.
    """
    minutes = job.removeprefix(f"{schedule}-")
    if minutes == job or not minutes.isdecimal():
        raise ValueError(f"Job {job} is not NAME-MINUTES of schedule {schedule}")
    return f"{schedule}-{datetime.fromtimestamp(60 * int(minutes), tz=UTC):{_TIME}}"


def named(template: str, placeholder: str, name: str) -> list[Manifest]:
    """The objects of a template, with the occurrence's name in place of the placeholder.

    Args:
        template: the objects as JSON.
        placeholder: name that the template was rendered for.
        name: the occurrence's name.
    """
    found: list[Manifest] = json.loads(template.replace(placeholder, name))
    return found


def with_code(objects: Iterable[Manifest], folder: Path) -> list[Manifest]:
    """The objects, with the content of files in the fields of `binaryData` that have their names.

    Args:
        objects: of an occurrence; their `binaryData` is empty.
        folder: the parts of its code.
    """
    return [
        {
            **one,
            "binaryData": {key: base64.b64encode((folder / key).read_bytes()).decode() for key in one["binaryData"]},
        }
        if "binaryData" in one
        else one
        for one in objects
    ]


def plan(concurrency: Concurrency, name: str, jobs: Iterable[Manifest], workloads: Sequence[Manifest]) -> Plan:
    """What to do about an occurrence.

    Args:
        concurrency: the schedule's rule.
        name: the occurrence.
        jobs: RayJobs of the schedule.
        workloads: Kueue's objects in the namespace.
    """
    found = {job["metadata"]["name"]: job for job in jobs}
    if name in found:
        return Plan(submits=False, stops=())
    stopped = {
        owner["uid"]
        for workload in workloads
        if workload["spec"].get("active") is False
        for owner in workload["metadata"].get("ownerReferences", ())
    }
    active = tuple(job for job in found.values() if not has_ended(job) and job["metadata"]["uid"] not in stopped)
    if concurrency == "forbid" and active:
        return Plan(submits=False, stops=())
    return Plan(submits=True, stops=active if concurrency == "replace" else ())


def beyond_history(jobs: Iterable[Manifest], *, keep: int) -> list[Manifest]:
    """The RayJobs that have ended, without the newest `keep`."""
    ended = sorted(filter(has_ended, jobs), key=lambda job: str(job["metadata"]["creationTimestamp"]), reverse=True)
    return ended[keep:]


def has_ended(job: Mapping[str, Any]) -> bool:
    """Whether KubeRay is done with a RayJob."""
    return (job.get("status") or {}).get("jobDeploymentStatus") in _ENDED

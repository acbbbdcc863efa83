"""Deletes ended jobs after their retention time.

An ended job releases its nodes and its GPU quota at once. The RayJob with its status, settings and driver log stays and
counts against the namespace's object quota. Kueue refuses RayJobs with KubeRay's own deletion rules
(`platform_charts.jobs.rayjob`), so the team's next submission deletes expired jobs. The run, its checkpoints and its logs
are files, and stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from infra.spec.manifest import Manifest
from platform_charts.jobs.rayjob import ENDED, KEEP_ANNOTATION
from training.cluster.objects import RAY_JOB

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi


def delete_expired(api: KubernetesApi, namespace: str, *, now: datetime) -> list[str]:
    """Delete the expired jobs of a namespace; returns their names.

    A job resumed at the same moment is another object of that name and is kept.

    Raises:
        ApiError: the jobs may be neither listed nor deleted.
    """
    expired = expired_jobs(api.items(*RAY_JOB, namespace=namespace), now=now)
    for job in expired:
        api.delete(job, propagation="Foreground")
    return [job["metadata"]["name"] for job in expired]


def expired_jobs(jobs: Iterable[Manifest], *, now: datetime) -> list[Manifest]:
    """The jobs whose retention time since their end is over.

    A stopped job has not ended; a job without a retention time is kept.
    """
    return [job for job in jobs if (keep := _keep(job)) is not None and (end := _end(job)) and now - end > keep]


def _keep(job: Manifest) -> timedelta | None:
    days = job["metadata"].get("annotations", {}).get(KEEP_ANNOTATION, "")
    try:
        return timedelta(days=float(days))
    except (ValueError, OverflowError):  # absent, or not ours
        return None


def _end(job: Manifest) -> datetime | None:
    status = job.get("status") or {}
    if status.get("jobDeploymentStatus") not in ENDED:
        return None
    # A job that KubeRay never started has no end time.
    return datetime.fromisoformat(status.get("endTime") or job["metadata"]["creationTimestamp"])

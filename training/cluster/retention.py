"""How long a job that has ended stays on the cluster.

Its nodes and its GPU quota are free as soon as it ends. What stays is the RayJob with its status, its settings and its
driver's log, and each counts against the namespace's quota of objects. Kueue refuses RayJobs with KubeRay's own deletion
rules (`platform_charts.jobs.rayjob`), so the team's next submission deletes the jobs that have stayed long enough. The
run itself, its checkpoints and its logs are files, and stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from infra.spec.manifest import Manifest
from platform_charts.jobs.rayjob import KEEP_ANNOTATION
from training.cluster.objects import RAY_JOB
from training.cluster.state import ENDED

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi


def delete_expired(api: KubernetesApi, namespace: str, *, now: datetime) -> list[str]:
    """Delete the jobs of a namespace whose retention time is over; returns their names.

    A job that is resumed at the same moment is another object of that name, and is left alone.

    Raises:
        ApiError: the jobs may be neither listed nor deleted.
    """
    expired = expired_jobs(api.items(*RAY_JOB, namespace=namespace), now=now)
    for job in expired:
        api.delete(job, propagation="Foreground")
    return [job["metadata"]["name"] for job in expired]


def expired_jobs(jobs: Iterable[Manifest], *, now: datetime) -> list[Manifest]:
    """The jobs that ended longer ago than their retention time.

    A stopped job has not ended, it waits to be resumed; a job without a retention time stays.
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

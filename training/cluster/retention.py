"""How long a job that has ended stays on the cluster.

Its nodes and its quota of GPUs are free as soon as it ends. What stays is the RayJob with its status, its settings and its
driver's log, and each counts against the namespace's quota of objects. Kueue takes no RayJob with KubeRay's own rules of
deletion (`platform_charts.jobs.rayjob`), so the next submission of the team clears away what has stayed long enough. The
run itself, its checkpoints and its logs are files, and stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from infra.spec.manifest import Manifest
from platform_charts.jobs.rayjob import KEEP_ANNOTATION
from training.cluster import places
from training.cluster.api import Api
from training.cluster.state import ENDED


def clear_ended(api: Api, namespace: str, *, now: datetime) -> list[str]:
    """Delete the jobs of a namespace that ended longer ago than they are kept; returns their names.

    A job that somebody resumes at the same moment is another object of that name, and is left alone.

    Raises:
        ApiError: the jobs may be neither listed nor deleted.
    """
    overdue = [job["metadata"] for job in overdue_jobs(api.items(places.jobs(namespace)), now=now)]
    for metadata in overdue:
        api.delete(places.job(namespace, metadata["name"]), uid=metadata["uid"])
    return [metadata["name"] for metadata in overdue]


def overdue_jobs(jobs: Iterable[Manifest], *, now: datetime) -> list[Manifest]:
    """Those that have ended and been kept as long as they ask for.

    A job that was stopped has not ended, it waits to be resumed; one that does not say how long it is kept, stays.
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
    # A job that KubeRay has not even begun has no end of its own.
    return datetime.fromisoformat(status.get("endTime") or job["metadata"]["creationTimestamp"])

"""Which ended jobs expire; test_cluster_commands deletes them from a real API server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from infra.spec.manifest import Manifest
from platform_charts.jobs.rayjob import KEEP_ANNOTATION
from tests.training.cluster.samples import ray_job
from training.cluster.retention import expired_jobs

NOW = datetime(2026, 11, 21, 8, 0, 0, tzinfo=UTC)


def ended(days_ago: float, *, keep: str | None = "14", deployment: str = "Complete") -> Manifest:
    """A job that ended a number of days before NOW."""
    job = ray_job(deployment, endTime=(NOW - timedelta(days=days_ago)).strftime("%Y-%m-%dT%H:%M:%SZ"))
    job["metadata"]["annotations"] = {} if keep is None else {KEEP_ANNOTATION: keep}
    return job


def test_a_job_expires_its_retention_time_after_its_end() -> None:
    for job, expires in (
        (ended(15), True),
        (ended(13), False),
        (ended(15, deployment="Failed"), True),
        (ended(15, keep="30"), False),
        (ended(0.1, keep="0"), True),
        (ended(99, keep=None), False),
        (ended(99, keep="for ever"), False),
        (ended(99, deployment="Suspended"), False),
        (ended(99, deployment="Running"), False),
        (ended(99, deployment="Retrying"), False),
    ):
        assert bool(expired_jobs([job], now=NOW)) is expires, job


def test_a_job_that_never_started_expires_its_retention_time_after_its_creation() -> None:
    job = ended(0, deployment="ValidationFailed")
    del job["status"]["endTime"]
    job["metadata"]["creationTimestamp"] = "2026-11-01T08:00:00Z"
    assert expired_jobs([job], now=NOW) == [job]

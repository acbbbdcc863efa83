"""Which ended jobs expire, and their deletion with dependents from a real API server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from infra.kube.api import KubernetesApi
from infra.spec.manifest import Manifest, api_object
from platform_charts.jobs.rayjob import KEEP_ANNOTATION
from tests.training.cluster.samples import ray_job
from tests.training.cluster.team_cluster import TeamCluster, wait_until
from training.cluster.retention import delete_expired, expired_jobs
from training.cluster.submission import submit

NOW = datetime(2026, 11, 21, 8, 0, 0, tzinfo=UTC)


def ended(days_ago: float, *, keep: str | None = "14", deployment: str = "Complete") -> Manifest:
    """A job that ended a number of days before NOW."""
    job = ray_job(deployment, endTime=(NOW - timedelta(days=days_ago)).strftime("%Y-%m-%dT%H:%M:%SZ"))
    job["metadata"]["annotations"] = {} if keep is None else {KEEP_ANNOTATION: keep}
    return job


@pytest.mark.parametrize(
    ("job", "expires"),
    [
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
    ],
)
def test_a_job_expires_its_retention_time_after_its_end(job: Manifest, expires: bool) -> None:  # noqa: FBT001
    assert bool(expired_jobs([job], now=NOW)) is expires


def test_a_job_that_never_started_expires_its_retention_time_after_its_creation() -> None:
    job = ended(0, deployment="ValidationFailed")
    del job["status"]["endTime"]
    job["metadata"]["creationTimestamp"] = "2026-11-01T08:00:00Z"
    assert expired_jobs([job], now=NOW) == [job]


def test_an_expired_job_is_deleted_with_its_settings_and_its_name_is_free(
    team_cluster: TeamCluster, api: KubernetesApi, name: str
) -> None:
    submit(api, team_cluster.objects(name), env="dev")
    team_cluster.operator_writes(
        name, jobDeploymentStatus="Complete", jobStatus="SUCCEEDED", endTime="2026-11-01T08:00:00Z"
    )
    assert delete_expired(api, team_cluster.namespace, now=NOW) == [name]
    settings = api_object("v1", "ConfigMap", f"{name}-settings", namespace=team_cluster.namespace)
    wait_until(lambda: team_cluster.job(name) is None and api.read(settings) is None)
    submit(api, team_cluster.objects(name), env="dev")


def test_a_running_job_never_expires(team_cluster: TeamCluster, api: KubernetesApi, name: str) -> None:
    submit(api, team_cluster.objects(name), env="dev")
    team_cluster.operator_writes(name, jobDeploymentStatus="Running", jobStatus="RUNNING")
    assert name not in delete_expired(api, team_cluster.namespace, now=NOW + timedelta(days=400))
    assert team_cluster.job(name) is not None

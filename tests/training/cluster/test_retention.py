"""Which ended jobs go, and that they go from a real API server with all that was theirs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from infra.spec.manifest import Manifest
from platform_charts.jobs.rayjob import KEEP_ANNOTATION
from tests.training.cluster.samples import ray_job
from tests.training.cluster.stage import Stage, wait_until
from training.cluster import places
from training.cluster.api import Api
from training.cluster.retention import clear_ended, overdue_jobs
from training.cluster.submission import submit

NOW = datetime(2026, 11, 21, 8, 0, 0, tzinfo=UTC)


def ended(days_ago: float, *, keep: str | None = "14", deployment: str = "Complete") -> Manifest:
    """A job that ended so many days before NOW."""
    job = ray_job(deployment, endTime=(NOW - timedelta(days=days_ago)).strftime("%Y-%m-%dT%H:%M:%SZ"))
    job["metadata"]["annotations"] = {} if keep is None else {KEEP_ANNOTATION: keep}
    return job


@pytest.mark.parametrize(
    ("job", "goes"),
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
def test_a_job_goes_that_has_ended_and_was_kept_as_long_as_it_asked(job: Manifest, goes: bool) -> None:  # noqa: FBT001
    assert bool(overdue_jobs([job], now=NOW)) is goes


def test_a_job_that_never_began_is_kept_from_its_creation_on() -> None:
    job = ended(0, deployment="ValidationFailed")
    del job["status"]["endTime"]
    job["metadata"]["creationTimestamp"] = "2026-11-01T08:00:00Z"
    assert overdue_jobs([job], now=NOW) == [job]


def test_what_is_overdue_goes_with_its_settings_and_its_name_is_free(on_stage: Stage, api: Api, name: str) -> None:
    submit(api, on_stage.objects(name), env="dev")
    on_stage.operator_writes(
        name, jobDeploymentStatus="Complete", jobStatus="SUCCEEDED", endTime="2026-11-01T08:00:00Z"
    )
    assert clear_ended(api, on_stage.namespace, now=NOW) == [name]
    settings = places.config_map(on_stage.namespace, f"{name}-settings")
    wait_until(lambda: on_stage.job(name) is None and api.read(settings) is None)
    submit(api, on_stage.objects(name), env="dev")


def test_what_goes_on_stays(on_stage: Stage, api: Api, name: str) -> None:
    submit(api, on_stage.objects(name), env="dev")
    on_stage.operator_writes(name, jobDeploymentStatus="Running", jobStatus="RUNNING")
    assert name not in clear_ended(api, on_stage.namespace, now=NOW + timedelta(days=400))
    assert on_stage.job(name) is not None

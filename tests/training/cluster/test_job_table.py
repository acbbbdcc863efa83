"""The table of the jobs, and what it costs the API server."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from kubernetes.client import ApiClient

from infra.lifecycle.sandbox.control_plane import ControlPlane
from tests.training.cluster.samples import ray_job
from tests.training.cluster.stage import Stage
from training.cluster import places
from training.cluster.api import Api
from training.cluster.job_table import job_table, survey
from training.cluster.position import Position
from training.cluster.state import Observation
from training.cluster.submission import submit


class CountingApi(Api):
    """Counts what it asks."""

    def __init__(self, client: ApiClient, patch: pytest.MonkeyPatch) -> None:
        super().__init__(client)
        self.paths: list[str] = []
        ask = client.call_api

        def counted(method: str, url: str, *arguments: object, **options: object) -> object:
            self.paths.append(url)
            return ask(method, url, *arguments, **options)

        patch.setattr(client, "call_api", counted)


def queued(stage: Stage, api: Api, name: str) -> None:
    """A job that waits for its quota."""
    submit(api, stage.objects(name), env="dev")
    api.patch(places.job(stage.namespace, name), {"spec": {"suspend": True}}, doing="play Kueue's webhook")
    stage.queue(name, QuotaReserved=False)


def test_many_waiting_jobs_take_as_many_requests_as_one(
    on_stage: Stage, api: Api, name: str, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued(on_stage, api, f"{name}-a")
    of_one = CountingApi(control_plane.client(), monkeypatch)
    survey(of_one, on_stage.namespace)
    for letter in "bcde":
        queued(on_stage, api, f"{name}-{letter}")
    of_five = CountingApi(control_plane.client(), monkeypatch)
    seen = [
        one for one in survey(of_five, on_stage.namespace) if one.job and one.job["metadata"]["name"].startswith(name)
    ]
    assert len(of_five.paths) == len(of_one.paths) <= 5
    places_of_five = [one.position.in_team for one in seen if one.position]
    assert len(set(places_of_five)) == 5


def test_what_becomes_of_ended_jobs_is_said_below_them() -> None:
    job = ray_job("Complete", "SUCCEEDED")
    job["metadata"]["creationTimestamp"] = "2026-11-21T08:00:00Z"
    job["spec"]["rayClusterSpec"] = {"workerGroupSpecs": []}
    now = datetime(2026, 11, 21, 9, 0, 0, tzinfo=UTC)
    *_, last = job_table({"research": [Observation(job=job)]}, now=now).splitlines()
    assert "kubectl -n NAMESPACE delete rayjob JOB" in last
    running = {**job, "status": {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}}
    table = job_table({"research": [Observation(job=running, position=Position(in_team=1))]}, now=now)
    assert "delete rayjob" not in table

"""The table of the jobs, and its requests to the API server."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from kubernetes.client import ApiClient

from infra.kube.api import KubernetesApi
from infra.lifecycle.sandbox.control_plane import ControlPlane
from tests.training.cluster.samples import ray_job, workload
from tests.training.cluster.team_cluster import TeamCluster
from training.cluster.job_table import job_table, observe_jobs
from training.cluster.queue_position import QueuePosition
from training.cluster.state import Observation
from training.cluster.submission import submit


class CountingApi(KubernetesApi):
    """Counts its requests after discovery."""

    def __init__(self, client: ApiClient, patch: pytest.MonkeyPatch) -> None:
        super().__init__(client)
        observe_jobs(self, "default")
        self.paths: list[str] = []
        ask = client.call_api

        def counted(method: str, url: str, *arguments: object, **options: object) -> object:
            self.paths.append(url)
            return ask(method, url, *arguments, **options)

        patch.setattr(client, "call_api", counted)


def queued(team_cluster: TeamCluster, api: KubernetesApi, name: str) -> None:
    """A job that waits for its quota."""
    job = submit(api, team_cluster.objects(name), env="dev")
    api.patch(job, {"spec": {"suspend": True}})  # like Kueue's webhook
    team_cluster.queue(name, QuotaReserved=False)


def test_the_number_of_requests_is_constant_in_the_number_of_jobs(
    team_cluster: TeamCluster,
    api: KubernetesApi,
    name: str,
    control_plane: ControlPlane,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queued(team_cluster, api, f"{name}-a")
    of_one = CountingApi(control_plane.client(), monkeypatch)
    observe_jobs(of_one, team_cluster.namespace)
    for letter in "bcde":
        queued(team_cluster, api, f"{name}-{letter}")
    of_five = CountingApi(control_plane.client(), monkeypatch)
    seen = [
        one
        for one in observe_jobs(of_five, team_cluster.namespace)
        if one.job and one.job["metadata"]["name"].startswith(name)
    ]
    assert len(of_five.paths) == len(of_one.paths) <= 5
    positions = [one.position.in_team for one in seen if one.position]
    assert len(set(positions)) == 5


def test_the_table_ends_with_how_ended_jobs_are_resumed_and_deleted() -> None:
    job = ray_job("Complete", "SUCCEEDED")
    job["metadata"]["creationTimestamp"] = "2026-11-21T08:00:00Z"
    job["spec"]["rayClusterSpec"] = {"workerGroupSpecs": []}
    now = datetime(2026, 11, 21, 9, 0, 0, tzinfo=UTC)
    *_, last = job_table({"research": [Observation(job=job)]}, now=now).splitlines()
    assert "kubectl -n NAMESPACE delete rayjob JOB" in last
    running = {**job, "status": {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}}
    table = job_table({"research": [Observation(job=running, position=QueuePosition(in_team=1))]}, now=now)
    assert "delete rayjob" not in table


def test_the_table_shows_the_group_that_kueue_assigned() -> None:
    job = ray_job("Running", "RUNNING")
    job["metadata"]["creationTimestamp"] = "2026-11-21T08:00:00Z"
    job["spec"]["rayClusterSpec"] = {"workerGroupSpecs": []}
    assigned = workload(Admitted="admitted")
    assigned["status"]["admission"] = {
        "podSetAssignments": [
            {"name": "head", "flavors": {"cpu": "heads"}},
            {"name": "workers", "flavors": {"cpu": "a10g-spot", "nvidia.com/gpu": "a10g-spot"}},
        ]
    }
    now = datetime(2026, 11, 21, 9, 0, 0, tzinfo=UTC)
    headings, row = job_table({"research": [Observation(job=job, workload=assigned)]}, now=now).splitlines()
    assert row[headings.index("group") :].startswith("a10g-spot ")

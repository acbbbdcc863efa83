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


def queued(team_cluster: TeamCluster, name: str) -> None:
    """A job that waits for its quota."""
    job = team_cluster.submit(name)
    team_cluster.api.patch(job, {"spec": {"suspend": True}})  # like Kueue's webhook
    team_cluster.queue(name, QuotaReserved=False)


def test_the_number_of_requests_is_constant_in_the_number_of_jobs(
    team_cluster: TeamCluster, name: str, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued(team_cluster, f"{name}-a")
    of_one = CountingApi(control_plane.client(), monkeypatch)
    observe_jobs(of_one, team_cluster.namespace)
    for letter in "bcde":
        queued(team_cluster, f"{name}-{letter}")
    of_five = CountingApi(control_plane.client(), monkeypatch)
    found = observe_jobs(of_five, team_cluster.namespace)
    assert len(of_five.paths) == len(of_one.paths) <= 5
    mine = [one for one in found if one.job and one.job["metadata"]["name"].startswith(name)]
    assert len({one.position.in_team for one in mine if one.position}) == 5


def test_the_table_shows_the_group_that_kueue_assigned_and_how_ended_jobs_are_resumed_and_deleted() -> None:
    now = datetime(2026, 11, 21, 9, 0, 0, tzinfo=UTC)
    ended, running = ray_job("Complete", "SUCCEEDED"), ray_job("Running", "RUNNING")
    for job in (ended, running):
        job["metadata"]["creationTimestamp"] = "2026-11-21T08:00:00Z"
        job["spec"]["rayClusterSpec"] = {"workerGroupSpecs": []}
    *_, last = job_table({"research": [Observation(job=ended)]}, now=now).splitlines()
    assert "kubectl -n NAMESPACE delete rayjob JOB" in last
    assigned = workload(Admitted="admitted")
    head = {"name": "head", "flavors": {"cpu": "heads"}}
    workers = {"name": "workers", "flavors": {"cpu": "a10g-spot", "nvidia.com/gpu": "a10g-spot"}}
    assigned["status"]["admission"] = {"podSetAssignments": [head, workers]}
    seen = Observation(job=running, workload=assigned, position=QueuePosition(in_team=1))
    headings, row = job_table({"research": [seen]}, now=now).splitlines()
    assert row[headings.index("group") :].startswith("a10g-spot ")

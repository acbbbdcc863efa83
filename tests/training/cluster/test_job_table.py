"""The table of the jobs, its requests to the API server, and how far running jobs are, from the ends of their logs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from kubernetes.client import ApiClient

from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError
from infra.lifecycle.sandbox.control_plane import ControlPlane
from observability.progress import ProgressView
from platform_charts.jobs.progress import Progress, newest_progress, read_progress_line
from tests.observability.sample_run import finished_run
from tests.training.cluster.samples import ray_job, workload
from tests.training.cluster.team_cluster import TeamCluster
from training.cluster.job_table import job_table, observe_jobs
from training.cluster.progress import read_progress
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


SEARCH_LINE = "trial  9/16  4 running, 1 failed  best validation accuracy 97.5 % (t002, epoch 3)  at most 12:30 left"
LINE = "step  40/120  epoch 1/3  loss 0.4000  accuracy 93.1 %  5,120 samples/s  12:30 left"


def test_the_steps_that_the_driver_prints_are_read() -> None:
    stream = io.StringIO()
    view = ProgressView(stream, is_terminal=False)
    for event in finished_run():
        view.handle(event)
    lines = stream.getvalue().splitlines()
    printed = [line for line in lines if line.startswith("step ")]
    assert printed
    assert [progress.done for line in lines if (progress := read_progress_line(line))] == [
        int(line.split()[1].partition("/")[0]) for line in printed
    ]
    assert any(progress.left for line in printed if (progress := read_progress_line(line)))


TRIALS = "9/16 trials, 4 running, 1 failed, best validation accuracy 97.5 % (t002, epoch 3)"


def test_a_line_has_its_progress_and_the_time_left_and_other_lines_have_none() -> None:
    for line, expected in (
        (LINE, ("step 40/120", "12:30")),
        ("step 120/120  epoch 3/3  loss 0.1000", ("step 120/120", "")),
        ("step 1/9  1:05:00 left", ("step 1/9", "1:05:00")),
        (SEARCH_LINE, (TRIALS, "at most 12:30")),
        ("trial 0/4  4 running", ("0/4 trials, 4 running", "")),
        ("trial 2/4  2 running  about 1:05:00 left", ("2/4 trials, 2 running", "1:05:00")),
    ):
        found = read_progress_line(line)
        assert found is not None, line
        assert (str(found), found.left) == expected
    others = ["", "stepping", "a step 1/2  x", "trials 1/2  x", "[   3.2 s] trial 1/2  x", "warning: step 3/4  y"]
    for line in (*others, "step 1/2"):
        assert read_progress_line(line) is None, line
        assert newest_progress([LINE, line]) == newest_progress([LINE])


class Logs(KubernetesApi):
    """A double: the API server's node has no kubelet whose logs it could read."""

    def __init__(self, lines: dict[str, list[str]]) -> None:
        self.lines = lines

    def log(self, pod: str, **_: object) -> Iterator[str]:
        if pod not in self.lines:
            raise ApiError(f"container of {pod} is waiting to start", code=400)
        yield from self.lines[pod]


def seen(name: str, *, status: str = "Running", pods: int = 1) -> Observation:
    job = ray_job(status, "RUNNING" if status == "Running" else "SUCCEEDED")
    job["metadata"] |= {"uid": f"uid-{name}", "name": name, "creationTimestamp": "2026-11-21T08:00:00Z"}
    job["spec"]["rayClusterSpec"] = {"workerGroupSpecs": []}
    labels = {"batch.kubernetes.io/job-name": name}
    submitters = [
        {"metadata": {"name": f"{name}-{number}", "namespace": "research", "labels": labels,
                      "creationTimestamp": f"2026-11-21T08:0{number}:00Z"}}
        for number in range(pods)
    ]  # fmt: skip
    head = {"metadata": {"name": f"{name}-head", "namespace": "research", "labels": {}}}
    return Observation(job=job, pods=[head, *submitters])


def test_the_newest_submitter_of_each_running_job_is_asked_and_the_table_shows_runs_and_searches() -> None:
    api = Logs(
        {
            "run-1": ["other", LINE, "notice"],
            "run-0": ["step 1/120  x"],
            "search-0": ["[   3.2 s] t002 added: learning_rate=0.01", SEARCH_LINE, "[   9.9 s] new best"],
            "done-0": [LINE],
            "quiet-0": ["no step yet"],
        }
    )
    done, other = seen("done", status="Complete"), [seen("unreadable"), seen("none", pods=0)]
    jobs = [seen("run", pods=2), seen("search"), seen("quiet")]
    progress = read_progress(api, [*jobs, done, *other])
    assert progress.pop("uid-run") == Progress(40, 120, LINE.partition("  40/120  ")[2])
    assert list(progress) == ["uid-search"]
    table = job_table({"research": jobs}, now=datetime(2026, 11, 21, 9, tzinfo=UTC), progress=read_progress(api, jobs))
    headings, *rows = table.splitlines()
    first, left, reason = (headings.index(name) for name in ("progress", "left", "reason"))
    shown = [(row[first:left].strip(), row[left:reason].strip()) for row in rows]
    assert shown == [("step 40/120", "12:30"), (TRIALS, "at most 12:30"), ("", "")]

"""How far running jobs are, from the ends of their logs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime

from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError
from observability.progress import ProgressView
from platform_charts.jobs.progress import Progress, newest_progress, read_progress_line
from tests.observability.sample_run import finished_run
from tests.training.cluster.samples import ray_job
from training.cluster.job_table import job_table
from training.cluster.progress import read_progress
from training.cluster.state import Observation

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


def test_the_newest_submitter_of_each_running_job_is_asked() -> None:
    api = Logs({"a-1": ["other", LINE, "notice"], "a-0": ["step 1/120  x"], "done-0": [LINE], "b-0": ["no step yet"]})
    jobs = [seen("a", pods=2), seen("b"), seen("unreadable"), seen("done", status="Complete"), seen("c", pods=0)]
    assert read_progress(api, jobs) == {"uid-a": Progress(40, 120, LINE.partition("  40/120  ")[2])}


def test_the_table_has_runs_and_searches() -> None:
    lines = {
        "run-0": [LINE],
        "search-0": ["[   3.2 s] t002 added: learning_rate=0.01", SEARCH_LINE, "[   9.9 s] new best"],
    }
    jobs = [seen("run"), seen("search"), seen("quiet")]
    now = datetime(2026, 11, 21, 9, tzinfo=UTC)
    table = job_table({"research": jobs}, now=now, progress=read_progress(Logs(lines), jobs))
    headings, *rows = table.splitlines()
    progress, left, reason = (headings.index(name) for name in ("progress", "left", "reason"))
    assert [(row[progress:left].strip(), row[left:reason].strip()) for row in rows] == [
        ("step 40/120", "12:30"),
        (TRIALS, "at most 12:30"),
        ("", ""),
    ]

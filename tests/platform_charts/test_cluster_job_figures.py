"""The columns of jobs with the real KubeRay, Kueue and admission policies: nothing of a job changes but its annotations."""

from __future__ import annotations

import time
from functools import partial

import pytest

from infra.spec.cluster_names import JOB_COLUMNS, MONITORING_NAMESPACE
from infra.spec.manifest import Manifest
from platform_charts.images.job_progress.__main__ import Jobs, poll
from platform_charts.images.job_progress.figures import Run
from tests.engines.kubernetes_operators import Operated
from tests.platform_charts.test_cluster_job_columns import table
from tests.training.cluster.test_cluster_queue import admitted, gpus
from tests.waiting import wait_until

USER = f"system:serviceaccount:{MONITORING_NAMESPACE}:job-progress"
TEAM = "research"
_SECONDS = 60


@pytest.fixture
def jobs(queued: Operated) -> Jobs:
    """The jobs as the program's account, with the role of the environment's own objects, reads and writes them."""
    return Jobs(queued.plane.client(USER), columns=JOB_COLUMNS)


def row(operated: Operated, name: str) -> dict[str, object]:
    return table(operated.cluster, TEAM)[1][name]


def run(step: int) -> Run:
    return Run(step=step, planned_steps=100, newest=time.time(), steps_per_second=0.1)


def test_a_patch_of_a_running_job_changes_nothing_else(queued: Operated, jobs: Jobs) -> None:
    made = admitted(queued, gpus("running", TEAM, 4))
    queued.dashboards.say("running", "RUNNING")
    queued.await_state(made, lambda state: state.stage == "running", what="running")
    before = _facts(queued, made)
    for step in range(20):
        assert poll(jobs, {(TEAM, "running"): run(step)}) == []
        shown = row(queued, "running")
        assert shown["progress"] == f"{step}/100 ({step} %)"
    assert (shown["time left"], shown["reason"]) == ("15m", None)
    # KubeRay has reconciled the job after the last patch: it reports what the driver says now.
    queued.end(made, "SUCCEEDED")
    wait_until(partial(_is_complete, queued, made), seconds=_SECONDS)
    assert _facts(queued, made) == before
    assert poll(jobs, {(TEAM, "running"): run(100)}) == []
    shown = row(queued, "running")
    assert (shown["progress"], shown["time left"], shown["reason"]) == ("100/100 (100 %)", None, None)


def _facts(queued: Operated, made: Manifest) -> dict[str, object]:
    """What would change if an operator began a job anew."""
    found, workload = queued.cluster.read(made), queued.workload(made)
    assert found is not None
    return {
        "generation": found["metadata"]["generation"],
        "spec": found["spec"],
        "submission": found["metadata"]["annotations"]["ray-train-platform/submission"],
        "cluster": found["status"]["rayClusterName"],
        "ray job": found["status"]["jobId"],
        "failures": found["status"].get("failed", 0),
        "workload": workload["metadata"]["uid"],
        "admission": workload["status"]["admission"],
    }


def _is_complete(queued: Operated, made: Manifest) -> bool:
    found = queued.cluster.read(made)
    return found is not None and found["status"]["jobDeploymentStatus"] == "Complete"

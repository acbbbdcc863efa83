"""For how long a job holds its pods, from objects as KubeRay, Kueue and kubelets leave them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from infra.spec.manifest import Manifest
from tests.training.cluster.team_cluster import objects, target
from training.cluster.job_cost import JobCost, job_cost
from training.cluster.state import Observation

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def job(**status: object) -> Manifest:
    """A RayJob of one worker pod with four GPUs."""
    made = objects("digits", "scale.gpu=true", "scale.workers=4")[-1]
    return {**made, "metadata": {**made["metadata"], "creationTimestamp": at(NOW - 9 * HOUR)}, "status": status}


def admitted(*, hours: float = 0, past: int = 0, group: str = "") -> Manifest:
    """A Workload that has been admitted for some hours, or is not, after earlier admissions."""
    since = {"type": "Admitted", "status": str(hours > 0), "lastTransitionTime": at(NOW - hours * HOUR)}
    flavors = [{"name": "workers", "flavors": {"nvidia.com/gpu": group}}] if group else []
    status = {"conditions": [since], "accumulatedPastExecutionTimeSeconds": past}
    return {"metadata": {}, "status": {**status, "admission": {"podSetAssignments": flavors}}}


def pod(role: str, *, hours: float, **status: object) -> Manifest:
    """A pod that got its node some hours ago."""
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(NOW - hours * HOUR)}
    return {"metadata": {"labels": {"ray.io/node-type": role}}, "status": {"conditions": [scheduled], **status}}


def cost(of_job: Manifest, workload: Manifest | None, *pods: Manifest) -> JobCost:
    return job_cost(Observation(job=of_job, workload=workload, pods=pods), target(), now=NOW)


def worker_hours(found: JobCost) -> float:
    (worker,) = [one for one in found.holdings if one.role == "worker"]
    return worker.seconds / 3600


WAITING = {"metadata": {"labels": {"ray.io/node-type": "worker"}}, "status": {"phase": "Pending"}}
RUNNING = {"jobDeploymentStatus": "Running"}


def test_pods_hold_their_nodes_from_when_they_got_them_until_they_end() -> None:
    terminated = {"terminated": {"finishedAt": at(NOW - 2 * HOUR)}}
    ended = pod("worker", hours=3, phase="Failed", containerStatuses=[{"state": terminated}])
    found = cost(job(**RUNNING), admitted(hours=4, group="a10g"), WAITING, ended, pod("head", hours=4))
    assert worker_hours(found) == pytest.approx(1)
    assert found.evidence == "pods"
    found = cost(job(jobDeploymentStatus="Initializing"), admitted(hours=1, group="a10g"), WAITING)
    assert (found.holdings, found.evidence, found.dollars) == ((), "nothing", 0)


def test_earlier_admissions_are_added_and_none_is_counted_twice() -> None:
    again = cost(job(**RUNNING), admitted(hours=1, past=7200, group="a10g"), pod("worker", hours=0.5))
    assert worker_hours(again) == pytest.approx(2.5)
    assert again.idle_share is None
    # The pods of a stopped job that still save.
    stopped = cost(job(jobDeploymentStatus="Suspending"), admitted(past=7200, group="a10g"), pod("worker", hours=2))
    assert worker_hours(stopped) == pytest.approx(2)
    assert stopped.evidence == "admission"


def test_an_ended_job_is_counted_to_the_minute_after_its_end_and_its_idle_share_is_known_unless_it_was_retried() -> (
    None
):
    driver = {"startTime": at(NOW - 2 * HOUR), "endTime": at(NOW - HOUR)}
    for failed, share in ((1, pytest.approx(1 - 1 / (2 + 1 / 60))), (2, None)):
        ended = job(jobDeploymentStatus="Failed", endTime=at(NOW - HOUR), failed=failed, rayJobInfo=driver)
        found = cost(ended, admitted(hours=3, group="a10g"))
        assert worker_hours(found) == pytest.approx(2 + 1 / 60)
        assert found.idle_share == share
    without_workload = job(jobDeploymentStatus="Complete", startTime=at(NOW - 2 * HOUR), endTime=at(NOW - HOUR))
    assert worker_hours(cost(without_workload, None)) == pytest.approx(1 + 1 / 60)


def test_a_group_that_the_stack_no_longer_has_is_no_price_but_a_reason() -> None:
    found = cost(job(**RUNNING), admitted(hours=1, group="gone"), pod("worker", hours=1))
    assert found.dollars is None
    assert found.notes == ("group gone is not in the stack",)

"""Jobs in the queues of two teams, with the real Kueue, the real KubeRay and the real scheduler; Ray's drivers are doubles.

In the dev environment each of the teams owns one of the two nodes of the group a10g, with 4 GPUs, and may borrow the
other's.
"""

from __future__ import annotations

import pytest

from infra.lifecycle.sandbox.api import Object
from infra.spec.manifest import Manifest
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.request import JobRequest
from tests.engines.kubernetes_jobs import job
from tests.engines.kubernetes_operators import Operated
from tests.training.cluster.follower import Follower
from tests.training.cluster.stage import wait_until
from training.cluster import control
from training.cluster import follow as following
from training.cluster.errors import ApiError
from training.cluster.state import JobState
from training.cluster.submission import submit
from training.errors import ExitStatus

_SECONDS = 60


def gpus(name: str, team: str, count: int, **fields: object) -> JobRequest:
    """A job on so many of the group's GPUs."""
    return job(name, team=team, group="a10g", workers=count, **fields)


def holds_its_nodes(state: JobState) -> bool:
    """Whether the queue has let a job in."""
    return state.stage in {"starting", "running"}


def is_queued(state: JobState) -> bool:
    """Whether Kueue says what a job waits for."""
    return state.stage == "queued" and "quota" in state.reason


def let_in(queued: Operated, request: JobRequest) -> Manifest:
    """Submit a job and wait until all its pods run."""
    submitted = queued.submit(request)
    wait_until(lambda: len(queued.pods(submitted)) > 0 and all(map(_runs, queued.pods(submitted))), seconds=_SECONDS)
    return submitted


def _runs(pod: Object) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def test_a_job_within_its_quota_gets_all_its_pods_on_the_nodes_of_its_group(queued: Operated) -> None:
    submitted = let_in(queued, gpus("within", "research", 8))
    workers = queued.pods(submitted, labels="ray.io/node-type=worker")
    assert len(workers) == 2
    assert {pod["spec"]["nodeName"] for pod in workers} == {"a10g-0", "a10g-1"}
    # Kueue writes the group that it chose into the pods.
    assert {pod["spec"]["nodeSelector"]["ray-train-platform/group"] for pod in workers} == {"a10g"}


def test_a_job_over_the_quota_waits_as_a_whole_and_says_what_for_until_there_is_room(queued: Operated) -> None:
    first = let_in(queued, gpus("first", "research", 8))
    second = queued.submit(gpus("second", "research", 8))
    state = queued.await_state(second, is_queued, what="queued")
    assert state.position is not None
    assert state.position.in_team == 1
    assert "nvidia.com/gpu in flavor a10g" in state.reason
    assert "flavor t4" not in state.reason
    assert queued.pods(second) == []
    queued.remove(first)
    queued.await_state(second, holds_its_nodes, what="let in")


def test_jobs_wait_in_the_order_of_their_priority(queued: Operated) -> None:
    let_in(queued, gpus("all", "research", 8, priority="high"))
    normal = queued.submit(gpus("normal", "research", 8))
    high = queued.submit(gpus("high", "research", 8, priority="high"))
    queued.await_state(high, is_queued, what="queued")
    queued.await_state(normal, is_queued, what="queued")
    places = [queued.look(one).position for one in (high, normal)]
    assert [place.in_team for place in places if place is not None] == [1, 2]


def test_who_borrowed_gives_back_to_whoever_owns_it_whatever_the_priority(queued: Operated) -> None:
    borrower = let_in(queued, gpus("borrower", "research", 8, priority="high"))
    owner = queued.submit(gpus("owner", "platform", 4, priority="low"))
    queued.await_state(owner, holds_its_nodes, what="let in")
    state = queued.await_state(borrower, lambda state: state.stage == "queued", what="queued again")
    assert "reclamation" in state.reason or "quota" in state.reason


def test_a_team_that_has_no_gpu_idle_preempts_its_own_jobs_of_lower_priority(queued: Operated) -> None:
    let_in(queued, gpus("others", "platform", 4))
    low = let_in(queued, gpus("low", "research", 4, priority="low"))
    high = queued.submit(gpus("high", "research", 4, priority="high"))
    queued.await_state(high, holds_its_nodes, what="let in")
    queued.await_state(low, lambda state: state.stage == "queued", what="queued again")


def test_equals_do_not_preempt_each_other(queued: Operated) -> None:
    let_in(queued, gpus("others", "platform", 4))
    first = let_in(queued, gpus("first", "research", 4))
    second = queued.submit(gpus("second", "research", 4))
    queued.await_state(second, is_queued, what="queued")
    assert holds_its_nodes(queued.look(first))


def test_a_stopped_job_frees_its_quota_and_a_resumed_one_queues_again(queued: Operated) -> None:
    first = let_in(queued, gpus("first", "research", 8))
    second = queued.submit(gpus("second", "research", 8))
    queued.await_state(second, is_queued, what="queued")
    control.stop(queued.api("research"), first)
    stopped = queued.await_state(first, lambda state: state.stage == "stopped", what="stopped")
    assert stopped.status is ExitStatus.INTERRUPTED
    assert queued.pods(first) == []
    queued.await_state(second, holds_its_nodes, what="let in")
    control.reactivate(queued.api("research"), first)
    queued.await_state(first, is_queued, what="queued")
    queued.remove(second)
    queued.await_state(first, holds_its_nodes, what="let in")


def test_a_job_is_followed_from_the_queue_to_its_end_and_leaves_the_quota_to_the_next(
    queued: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_LOOK_SECONDS", 0.2)
    first = let_in(queued, gpus("first", "research", 8))
    second = queued.submit(gpus("second", "research", 8))
    follower = Follower(queued.api("research"), namespace="research", name="second", patience=_SECONDS)
    follower.sees("in the queue")
    follower.sees("position 1: ")
    queued.dashboards.say("first", "RUNNING")
    queued.await_state(first, lambda state: state.stage == "running", what="running")
    queued.end(first, "SUCCEEDED")
    ended = queued.await_state(first, lambda state: state.stage == "done", what="done")
    assert ended.status is ExitStatus.DONE
    follower.sees("starting the pods")
    queued.remove(first)  # its pods would keep the nodes for another minute, for their last figures
    queued.dashboards.say("second", "RUNNING")
    follower.sees("the driver runs")
    queued.end(second, "FAILED", "Job entrypoint command failed with exit code 3. No logs available.")
    assert follower.end().status is ExitStatus.REFUSED
    assert "the driver ended with exit code 3" in follower.shown


def test_no_member_of_another_team_stops_a_job(queued: Operated) -> None:
    submitted = let_in(queued, gpus("ours", "research", 4))
    with pytest.raises(ApiError, match="may not"):
        control.stop(queued.api("platform"), submitted)


def test_what_kueue_refuses_is_refused_at_submission(queued: Operated) -> None:
    manifests = render_job(gpus("kept", "research", 4), queued.environment.target)
    manifests[1]["spec"]["shutdownAfterJobFinishes"] = False
    manifests[1]["spec"].pop("ttlSecondsAfterFinished")
    with pytest.raises(ApiError, match="delete the cluster after finishing"):
        submit(queued.api("research"), manifests, env="dev")

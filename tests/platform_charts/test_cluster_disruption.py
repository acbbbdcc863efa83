"""Evictions of a job's pods, as a drain, a node group's update and the autoscaler request them, on a real API server."""

from __future__ import annotations

import pytest

from infra.lifecycle.rollout.queues import release_queues
from infra.lifecycle.rollout.update import GuardedUpdate
from infra.spec.manifest import Manifest
from platform_charts.jobs.request import JobRequest
from tests.engines.kubernetes_history import watching
from tests.engines.kubernetes_jobs import is_ready, job, node_type
from tests.engines.kubernetes_operators import Operated
from tests.engines.node_drain import PodEvictionFailureError, draining, evict
from tests.infra.lifecycle.rollout.test_update import ROLLS
from tests.platform_charts.undisturbed import KINDS, disturbances
from tests.waiting import wait_until
from training.cluster.state import Stage

_SECONDS = 60


def running(queued: Operated, request: JobRequest) -> tuple[Manifest, list[Manifest]]:
    """A job whose driver runs, and its pods, all ready."""
    submitted = queued.submit(request)
    queued.dashboards.say(request.name, "RUNNING")
    queued.await_state(submitted, lambda state: state.stage == "running", what="running")
    wait_until(lambda: all(map(is_ready, queued.pods(submitted))), seconds=_SECONDS)
    return submitted, queued.pods(submitted)


def test_no_pod_of_a_running_job_can_be_evicted_and_a_drain_fails_and_leaves_it_alone(queued: Operated) -> None:
    _, pods = running(queued, job("beside", team="research", group="a10g", workers=8))
    evictions = {node_type(pod): evict(queued.cluster, pod) for pod in pods}
    assert evictions.keys() == {"head", "worker", "submitter"}
    assert all("disruption budget" in why for why in evictions.values()), evictions
    workers = {pod["metadata"]["name"] for pod in pods if node_type(pod) == "worker"}
    with (
        watching(queued.cluster, KINDS, namespace="research") as history,
        draining(queued.cluster, group="a10g") as drain,
    ):
        with pytest.raises(PodEvictionFailureError):
            drain.run(rounds=3)
        refusals = drain.round()
    assert refusals.keys() == workers
    assert all("disruption budget" in why for why in refusals.values())
    assert disturbances(history) == []


@pytest.mark.timeout(300)
def test_a_drain_under_way_ends_once_the_update_holds_the_queues(queued: Operated) -> None:
    submitted, before = running(queued, job("held", team="research", group="a10g", workers=8))
    stages: list[Stage] = []
    with draining(queued.cluster, group="a10g") as drain:

        def go_on() -> int:
            drain.run(rounds=100)
            stages.append(queued.look(submitted).stage)
            return 0

        assert drain.round() != {}
        update = GuardedUpdate(
            environment="dev",
            api=queued.cluster,
            preview=ROLLS,
            pulumi=go_on,
            choose=lambda: "drain",
            seconds=_SECONDS,
            say=print,
        )
        try:
            assert update.run() == 0
        finally:
            release_queues(queued.cluster)
    assert stages == ["queued"]
    queued.await_state(submitted, lambda state: state.stage == "running", what="running again")
    assert not {one["metadata"]["uid"] for one in queued.pods(submitted)} & {one["metadata"]["uid"] for one in before}

"""Elastic jobs with the real API server, KubeRay, Kueue and scheduler; Ray's drivers are fakes.

In the dev environment each of the teams owns one of the two nodes of the group a10g, with 4 GPUs.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infra.spec.cluster_names import JOB_SIZER_ACCOUNT, KUEUE_API, MONITORING_NAMESPACE
from infra.spec.manifest import Manifest
from platform_charts.images.job_sizer.__main__ import Objects, poll
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.request import JobRequest
from tests.engines.kubernetes_jobs import is_ready, job
from tests.engines.kubernetes_operators import Operated
from tests.training.cluster.test_cluster_queue import admitted, gpus, is_admitted
from tests.waiting import wait_until
from training.cluster import control
from training.cluster.job_size import limit
from training.cluster.lent_quota import gated_if_lent
from training.cluster.submission import submit

SIZER = f"system:serviceaccount:{MONITORING_NAMESPACE}:{JOB_SIZER_ACCOUNT}"
TEAM = "research"
_SECONDS = 60


@pytest.fixture
def objects(queued: Operated) -> Objects:
    """The cluster as the sizer's account sees it, with the role of the environment's own objects."""
    return Objects(queued.plane.client(SIZER), namespaces=["platform", TEAM])


def elastic(name: str, sizes: tuple[int, ...], **fields: object) -> JobRequest:
    """An elastic job on GPUs of the group, with a pod for each of the fewest ranks."""
    return job(name, team=TEAM, group="a10g", workers=sizes[-1], sizes=sizes, **fields)


def running(queued: Operated, request: JobRequest) -> Manifest:
    """Submit a job and wait until its driver runs."""
    made = admitted(queued, request)
    queued.dashboards.say(request.name, "RUNNING")
    queued.await_state(made, lambda state: state.stage == "running", what="running")
    return made


def submitted_by_command(queued: Operated, request: JobRequest) -> Manifest:
    """Submit a job as `make train` does."""
    api, team = queued.api(request.team), request.team
    manifests = render_job(request, queued.environment.target)
    ready = [gated_if_lent(api, one, queue=team) if one["kind"] == "RayJob" else one for one in manifests]
    return submit(api, ready, env="dev")


def slices(queued: Operated, made: Manifest) -> list[tuple[int, str]]:
    """The Workloads of a job, the oldest first: worker pods and state."""
    found = queued.cluster.items(
        KUEUE_API, "Workload", namespace=TEAM, labels=f"kueue.x-k8s.io/job-uid={made['metadata']['uid']}"
    )
    ordered = sorted(found, key=lambda one: str(one["metadata"]["creationTimestamp"]))
    return [(_workers(one), _state(one)) for one in ordered]


def _workers(workload: Manifest) -> int:
    (count,) = [one["count"] for one in workload["spec"]["podSets"] if one["name"] == "workers"]
    assert isinstance(count, int)
    return count


def _state(workload: Manifest) -> str:
    conditions = {one["type"]: one["status"] for one in workload.get("status", {}).get("conditions", ())}
    return next((kind for kind in ("Finished", "Evicted", "Admitted") if conditions.get(kind) == "True"), "Pending")


def workers(queued: Operated, made: Manifest) -> list[Manifest]:
    return queued.pods(made, labels="ray.io/node-type=worker")


def polled(queued: Operated, objects: Objects, is_so: Callable[[], bool]) -> list[str]:
    """Poll until something holds; returns what the sizer logged."""
    lines: list[str] = []

    def holds() -> bool:
        lines.extend(poll(objects))
        return is_so()

    wait_until(holds, seconds=_SECONDS)
    return lines


def _all_run(queued: Operated, made: Manifest) -> bool:
    found = workers(queued, made)
    return bool(found) and all(map(is_ready, found))


def _all_ready(queued: Operated, made: Manifest, count: int) -> bool:
    found = workers(queued, made)
    return len(found) == count and all(map(is_ready, found))


def test_an_elastic_job_grows_from_its_fewest_into_idle_quota_and_returns_it_when_the_owner_wants_it(
    queued: Operated, objects: Objects
) -> None:
    made = running(queued, elastic("borrows", (1, 2, 4, 8)))
    assert (len(workers(queued, made)), slices(queued, made)) == (1, [(1, "Admitted")])
    lines = polled(queued, objects, lambda: _all_ready(queued, made, 8))
    assert lines == ["research/borrows: 1 of 1-8 worker pods; asks for 8", "research/borrows: 8 of 1-8 worker pods"]
    assert slices(queued, made) == [(1, "Finished"), (8, "Admitted")]
    assert poll(objects) == []
    before = {pod["metadata"]["name"] for pod in workers(queued, made)}
    owner = submitted_by_command(queued, gpus("owner", "platform", 4))
    state = queued.await_state(owner, lambda state: bool(state.reason), what="waiting")
    assert state.reason == "elastic jobs of other teams are returning GPUs of the team's quota"
    lines = polled(queued, objects, lambda: is_admitted(queued.look(owner)))
    assert lines == [
        "research/borrows: 8 of 1-8 worker pods; returns 4 to platform/owner",
        "research/borrows: 4 of 1-8 worker pods; returned 4 to platform/owner",
        "platform/owner: may be admitted",
    ]
    wait_until(lambda: _all_run(queued, owner), seconds=_SECONDS)
    assert {pod["metadata"]["name"] for pod in workers(queued, made)} < before
    assert slices(queued, made) == [(1, "Finished"), (4, "Admitted")]
    state = queued.look(made)
    assert (state.stage, state.reason) == ("running", "4 of 1-8 worker pods")


def test_an_elastic_job_that_its_user_resizes_returns_workers_and_grows_again(
    queued: Operated, objects: Objects
) -> None:
    admitted(queued, gpus("others", "platform", 4))
    made = running(queued, elastic("resizes", (1, 2, 4)))
    polled(queued, objects, lambda: _all_ready(queued, made, 4))
    limit(queued.api(TEAM), made, 2)
    lines = polled(queued, objects, lambda: slices(queued, made)[-1] == (2, "Admitted"))
    assert lines == [
        "research/resizes: 4 worker pods, limited to 2; returns 2",
        "research/resizes: 2 of 1-2 worker pods; returned 2",
    ]
    assert _all_ready(queued, made, 2)
    assert poll(objects) == []
    other = admitted(queued, gpus("other", TEAM, 2))
    assert queued.look(made).stage == "running"
    control.remove(queued.api(TEAM), _read(queued, other))
    limit(queued.api(TEAM), made, 4)
    polled(queued, objects, lambda: _all_ready(queued, made, 4))


def _read(queued: Operated, made: Manifest) -> Manifest:
    found = queued.cluster.read(made)
    assert found is not None
    return found

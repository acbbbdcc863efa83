"""Evictions of a job's pods, as a drain, a node group's update and the autoscaler request them, on a real API server."""

from __future__ import annotations

from kubernetes.client import CoreV1Api, V1Eviction, V1ObjectMeta
from kubernetes.client.exceptions import ApiException

from infra.spec.manifest import Manifest
from platform_charts.jobs.request import JobRequest
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_jobs import job, node_type
from tests.engines.kubernetes_operators import Operated
from tests.training.cluster.team_cluster import wait_until
from training.cluster import control

_SECONDS = 60
_TOO_MANY_REQUESTS = 429


def evict(cluster: Cluster, pod: Manifest) -> str:
    """Request the eviction of a pod; returns why it is refused, or an empty text."""
    metadata = pod["metadata"]
    body = V1Eviction(metadata=V1ObjectMeta(name=metadata["name"], namespace=metadata["namespace"]))
    try:
        CoreV1Api(cluster.client).create_namespaced_pod_eviction(metadata["name"], metadata["namespace"], body)
    except ApiException as error:
        if error.status != _TOO_MANY_REQUESTS:
            raise
        return str(error.body)
    return ""


def running(queued: Operated, request: JobRequest) -> tuple[Manifest, list[Manifest]]:
    """A job whose driver runs, and its pods, all ready."""
    submitted = queued.submit(request)
    queued.dashboards.say(request.name, "RUNNING")
    queued.await_state(submitted, lambda state: state.stage == "running", what="running")
    wait_until(lambda: all(map(_is_ready, queued.pods(submitted))), seconds=_SECONDS)
    return submitted, queued.pods(submitted)


def _is_ready(pod: Manifest) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def test_no_pod_of_a_running_job_can_be_evicted(queued: Operated) -> None:
    _, pods = running(queued, job("guarded", team="research", group="a10g", workers=8))
    refusals = {node_type(pod): evict(queued.cluster, pod) for pod in pods}
    assert refusals.keys() == {"head", "worker", "submitter"}
    assert all("disruption budget" in why for why in refusals.values()), refusals


def test_a_stopped_job_leaves_its_nodes_in_spite_of_the_budget(queued: Operated) -> None:
    submitted, _ = running(queued, job("stopped", team="research", group="a10g", workers=8))
    control.stop(queued.api("research"), submitted)
    queued.await_state(submitted, lambda state: state.stage == "stopped", what="stopped")
    assert queued.pods(submitted) == []


def test_pods_that_have_ended_do_not_hold_up_a_drain(queued: Operated) -> None:
    submitted, pods = running(queued, job("ended", team="research", group="a10g", workers=8))
    queued.end(submitted, "SUCCEEDED")
    queued.await_state(submitted, lambda state: state.stage == "done", what="done")
    (submitter,) = [pod for pod in pods if node_type(pod) == "submitter"]
    assert evict(queued.cluster, submitter) == ""

"""How the real scheduler places a job's pods on the nodes of an environment."""

from __future__ import annotations

from collections import Counter
from typing import Any

from infra.spec.manifest import Manifest
from tests.engines.kubernetes_jobs import created, job, node_type, placed, rayjob
from tests.engines.kubernetes_platform import Environment, in_prod
from tests.kuberay.expand import expand
from training.cluster.node_room import room_by_group
from training.cluster.waiting import waiting_reason

GROUP = "ray-train-platform/group"
ZONE = "topology.kubernetes.io/zone"


@in_prod
def test_workers_fill_whole_nodes_with_efa_and_head_and_submitter_run_on_the_head_nodes(
    environment: Environment,
) -> None:
    with placed(environment, job("fills", team=environment.team, workers=64, group="h100")) as pods:
        assert _types(environment, pods) == {"p5.48xlarge": 8}
        assert len({pod["spec"]["nodeName"] for pod in pods if node_type(pod) == "worker"}) == 8
        groups = {node_type(pod): _node(environment, pod)["metadata"]["labels"][GROUP] for pod in pods}
    assert groups == {"head": "heads", "worker": "h100", "submitter": "heads"}


@in_prod
def test_workers_of_one_job_wait_for_their_zone_rather_than_use_two(environment: Environment) -> None:
    """The 8 nodes of l4 are 3, 3 and 2 in three zones, of which one each is taken: no zone has room for 3 pods."""
    taken = {zone: _workers(environment, f"takes-{zone}", group="l4", workers=4)[0] for zone in "abc"}
    for zone, pod in taken.items():
        pod["spec"]["nodeSelector"][ZONE] = f"us-east-1{zone}"
    workers = _workers(environment, "waits", group="l4", workers=12)
    with created(environment.cluster, list(taken.values())):
        for pod in taken.values():
            environment.cluster.await_(pod, _is_placed, what="scheduled")
        with created(environment.cluster, workers):
            settled = [environment.cluster.await_(pod, _is_decided, what="scheduled or refused") for pod in workers]
            placed_pods = [pod for pod in settled if _is_placed(pod)]
            [zone] = {_node(environment, pod)["metadata"]["labels"][ZONE] for pod in placed_pods}
            reasons = [_unscheduled(pod) for pod in settled if not _is_placed(pod)]
            assert reasons
            assert all("didn't match pod affinity rules" in reason for reason in reasons)
            if zone != "us-east-1c":  # which has two nodes in all
                environment.cluster.delete_all([taken[zone[-1]]])
                for pod in workers:
                    running = environment.cluster.await_(pod, _is_placed, what="scheduled")
                    assert _node(environment, running)["metadata"]["labels"][ZONE] == zone


@in_prod
def test_a_job_without_free_nodes_stays_pending_and_the_reason_names_the_resources(environment: Environment) -> None:
    waiting = _workers(environment, "late", group="h100", workers=16)
    all_nodes = job("all", team=environment.team, workers=64, group="h100")
    with placed(environment, all_nodes), created(environment.cluster, waiting):
        reason = _pending_reason(environment, waiting[0])
        found = environment.cluster.items("v1", "Pod", namespace=environment.team, labels=_of_job("late"))
        names = {pod["metadata"]["name"] for pod in found}
        events = environment.cluster.items("v1", "Event", namespace=environment.team)
        events = [one for one in events if one["involvedObject"]["name"] in names]
        reported = waiting_reason(found, events, room_by_group(environment.target))
    assert "Insufficient nvidia.com/gpu" in reason
    assert "Insufficient vpc.amazonaws.com/efa" in reason
    assert "Insufficient nvidia.com/gpu" in reported
    assert "8 GPUs on a node of group h100, of which an empty one (p5.48xlarge) has" in reported
    assert "8 of at most 8 are ready" in reported


def _workers(environment: Environment, name: str, **fields: Any) -> list[Manifest]:  # noqa: ANN401 - of a JobRequest
    pods = expand(rayjob(environment, job(name, team=environment.team, **fields)))
    return [pod for pod in pods if node_type(pod) == "worker"]


def _types(environment: Environment, pods: list[Manifest]) -> dict[str, int]:
    """Number of nodes with workers, by instance type."""
    used = [_node(environment, pod) for pod in pods if node_type(pod) == "worker"]
    return dict(Counter(node["metadata"]["labels"]["node.kubernetes.io/instance-type"] for node in used))


def _node(environment: Environment, pod: Manifest) -> Manifest:
    name = pod["spec"]["nodeName"]
    found = environment.cluster.read({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    assert found is not None
    return found


def _pending_reason(environment: Environment, pod: Manifest) -> str:
    found = environment.cluster.await_(pod, lambda one: _unscheduled(one) != "", what="marked unschedulable")
    assert found["status"]["phase"] == "Pending"
    return _unscheduled(found)


def _unscheduled(pod: Manifest) -> str:
    conditions = pod["status"].get("conditions", [])
    return "".join(one["message"] for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False")


def _is_placed(pod: Manifest) -> bool:
    return "nodeName" in pod["spec"]


def _is_decided(pod: Manifest) -> bool:
    return _is_placed(pod) or _unscheduled(pod) != ""


def _of_job(name: str) -> str:
    return f"ray-train-platform/job={name}"

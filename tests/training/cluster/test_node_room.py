"""What an unscheduled pod is told about the nodes of its group."""

from __future__ import annotations

from infra.spec.manifest import Manifest
from tests.training.cluster.samples import unscheduled_pod
from tests.training.cluster.team_cluster import target
from training.cluster.node_room import explain_unscheduled, room_by_group
from training.cluster.waiting import waiting_reason

FULL = "1 Insufficient memory, 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s)"
EVICTIONS = (
    "no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
)
MESSAGE = f"0/3 nodes are available: {FULL}. {EVICTIONS}"

CPU_POD = "it asks for 2 CPUs, 7 GiB of memory on a node of group heads, of which an empty one (m7i.xlarge) has "


def container(**requests: str) -> Manifest:
    """A container with these requests."""
    return {"resources": {"requests": requests}}


def pod(
    *containers: Manifest, group: str = "heads", message: str = MESSAGE, init: tuple[Manifest, ...] = ()
) -> Manifest:
    """A pod of a group that the scheduler cannot place."""
    found = unscheduled_pod(message)
    selector = {"ray-train-platform/group": group}
    return {**found, "spec": {"nodeSelector": selector, "containers": [*containers], "initContainers": [*init]}}


def reason(found: Manifest, **outputs: object) -> str:
    """Why that pod of the dev stack waits."""
    return waiting_reason([found], [], room_by_group(target(**outputs)))


def test_a_pod_without_a_node_is_told_its_group_its_requests_the_nodes_and_what_to_do() -> None:
    assert reason(pod(container(cpu="2", memory="7Gi"))) == (
        f"pod digits-head: Unschedulable: 0/3 nodes are available: {FULL}; {CPU_POD}3 CPUs, 12 GiB of memory for jobs; "
        "1 of at most 4 is ready; use fewer workers, raise head_nodes.max_size in infra/environments/dev.yaml, or wait for "
        "the autoscaler or until other pods end"
    )


def test_a_full_group_gets_no_nodes_from_the_autoscaler() -> None:
    message = "0/9 nodes are available: 2 Insufficient nvidia.com/gpu, 7 node(s) had untolerated taint(s)."
    found = reason(pod(container(cpu="44", memory="150Gi", **{"nvidia.com/gpu": "4"}), group="a10g", message=message))
    assert "it asks for 44 CPUs, 150 GiB of memory, 4 GPUs on a node of group a10g" in found
    assert "(g5.12xlarge) has 44 CPUs, 156 GiB of memory, 4 GPUs for jobs; 2 of at most 2 are ready" in found
    assert found.endswith(
        "raise max_size of GPU group a10g in infra/environments/dev.yaml, or wait until other pods end"
    )


def test_a_pod_that_is_larger_than_a_node_must_ask_for_less() -> None:
    for requests in ({"cpu": "3500m"}, {"memory": "13Gi"}, {"nvidia.com/gpu": "1"}):
        found = reason(pod(container(**requests)))
        assert found.endswith("3 CPUs, 12 GiB of memory for jobs; ask for less, or use larger nodes"), requests


def test_a_pod_asks_for_its_containers_or_for_what_one_of_its_init_containers_needs() -> None:
    sidecar = {**container(cpu="500m"), "restartPolicy": "Always"}
    cases: list[tuple[tuple[Manifest, ...], str]] = [
        ((), "1.5"),
        ((container(cpu="2"),), "2"),
        ((sidecar,), "2"),
        ((sidecar, container(cpu="2")), "2.5"),
        ((container(cpu="1"), {**container(cpu="1"), "restartPolicy": "Always"}), "2.5"),
    ]
    for init, cpus in cases:
        found = reason(pod(container(cpu="1"), container(cpu="500m"), init=init))
        assert f"it asks for {cpus} CPUs, 0 GiB of memory" in found


def test_what_the_stack_or_the_scheduler_does_not_say_is_left_out() -> None:
    for group in ("", "another"):
        assert explain_unscheduled(pod(container(), group=group), MESSAGE, room_by_group(target())) == ""
        assert EVICTIONS in reason(pod(container(), group=group))
    unlimited = reason(pod(container(cpu="2", memory="7Gi")), head_max_nodes=None)
    assert "for jobs; 1 is ready; use fewer" in unlimited
    other_words = reason(pod(container(cpu="2", memory="7Gi"), message="no nodes available to schedule pods"))
    assert "for jobs; use fewer" in other_words
    assert "heads" not in room_by_group(target(head_instance_type=None))
    assert room_by_group(target())["t4"].gpus == 4, "shared GPUs count as often as they are advertised"

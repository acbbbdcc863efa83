"""The group and the nodes that the real Kueue chooses for a job.

Three groups have one node with 4 A10G each: a reservation, on demand, and spot. The group `near` has six nodes with 4 L40S,
of which each two share the lowest layer of EC2's network. The nodes are fakes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from infra.spec.manifest import Manifest, api_object
from infra.spec.settings import StackSettings, from_mapping
from platform_charts.jobs.request import JobRequest
from tests.engines.kubernetes_jobs import created, job
from tests.engines.kubernetes_operators import Operated, operating
from tests.infra.spec.samples import changed, dev_sections
from tests.waiting import wait_until
from training.cluster.job_manifest import admitted_group, options_of
from training.cluster.state import JobState

pytestmark = pytest.mark.extended

_SECONDS = 60
_SIX = {"min_size": 6, "desired_size": 6, "max_size": 6}
_RESERVATION = {"kind": "reservation", "id": "cr-00000000000000001", "availability_zone": "us-east-1a"}


def a10g(name: str, capacity: dict[str, Any]) -> dict[str, Any]:
    """A group with one node of 4 GPUs."""
    zone = {"max_size": 1, "availability_zones": ["us-east-1a"]}
    return {"name": name, "instance_type": "g5.12xlarge", "capacity": capacity, **zone}


def environment() -> StackSettings:
    """The dev environment with these groups, listed in another order than that of preference."""
    groups = [
        a10g("spot", {"kind": "spot"}),
        a10g("on-demand", {"kind": "on_demand"}),
        a10g("reserved", _RESERVATION),
        {"name": "l4", "instance_type": "g6.12xlarge", "max_size": 1},
        {**a10g("near", {"kind": "on_demand"}), "instance_type": "g6e.12xlarge", **_SIX, "topology": "network"},
    ]
    own = {group["name"]: 4 for group in groups} | {"near": 24}
    changes = {"gpu_groups": groups, "teams": [{"name": "research", "gpus": own}]}
    return from_mapping(changed(dev_sections(), changes), file="capacity")


@pytest.fixture(scope="module")
def plane() -> Iterator[Operated]:
    """The environment with the operators."""
    with operating(environment()) as found:
        if "kueue" not in found.operators:
            pytest.skip("Kueue is not built: make engines")
        for number in range(6):
            label_node(found, f"near-{number}", layers=("top", f"middle-{number // 4}", f"bottom-{number // 2}"))
        yield found


@pytest.fixture
def queued(plane: Operated) -> Iterator[Operated]:
    """The environment; deletes all jobs afterwards."""
    yield plane
    plane.remove(*plane.cluster.items("ray.io/v1", "RayJob"))


def label_node(found: Operated, name: str, *, layers: Sequence[str]) -> None:
    """Label a node with its part of each network layer, like EKS."""
    labels = {f"topology.k8s.aws/network-node-layer-{layer}": part for layer, part in enumerate(layers, start=1)}
    found.cluster.apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}, manager="eks"
    )


def submit(queued: Operated, name: str, **fields: Any) -> Manifest:  # noqa: ANN401 - of a JobRequest
    """Submit a job on 4 A10G."""
    return queued.submit(job(name, **{"team": "research", "workers": 4, "gpu_model": "a10g", **fields}))


def group_of(queued: Operated, submitted: Manifest) -> str:
    """The group that a job is admitted to."""
    queued.await_state(submitted, lambda state: state.stage in {"starting", "running"}, what="admitted")
    return admitted_group(queued.workload(submitted))


def waits(state: JobState) -> bool:
    """Whether a job waits for quota."""
    return state.stage == "queued" and "insufficient unused quota" in state.reason


def test_jobs_get_reserved_capacity_first_then_on_demand_and_spot_only_if_they_allow_it(queued: Operated) -> None:
    first = submit(queued, "first", spot=True)
    assert group_of(queued, first) == "reserved"
    assert group_of(queued, submit(queued, "second", spot=True)) == "on-demand"
    third = submit(queued, "third")
    state = queued.await_state(third, waits, what="queued")
    assert "untolerated taint" not in state.reason
    assert group_of(queued, submit(queued, "fourth", spot=True)) == "spot"
    assert waits(queued.look(third))
    queued.remove(first)
    assert group_of(queued, third) == "reserved"


def test_a_job_gets_the_first_group_of_its_list_that_has_room_and_no_other(queued: Operated) -> None:
    listed = {"gpu_model": None, "group": "reserved,spot"}
    assert group_of(queued, submit(queued, "first", **listed)) == "reserved"
    assert group_of(queued, submit(queued, "second", **listed)) == "spot"
    third = submit(queued, "third", **listed)
    queued.await_state(third, waits, what="queued although on-demand is free")
    found = queued.cluster.read(third)
    assert found is not None
    assert options_of(found).group == "reserved,spot"


def test_the_workers_of_an_admitted_job_select_the_nodes_of_the_group_that_it_got(queued: Operated) -> None:
    group_of(queued, submit(queued, "first"))
    second = submit(queued, "second")
    group_of(queued, second)
    wait_until(lambda: bool(queued.pods(second, labels="ray.io/node-type=worker")), seconds=_SECONDS)
    [worker] = queued.pods(second, labels="ray.io/node-type=worker")
    assert worker["spec"]["nodeSelector"] == {"ray-train-platform/group": "on-demand"}
    wait_until(lambda: _nodes(queued, second) == {"on-demand-0"}, seconds=_SECONDS)
    found = queued.cluster.read(second)
    assert found is not None
    assert (options_of(found).group, options_of(found).gpu_model, options_of(found).spot) == (None, "a10g", False)


def _nodes(queued: Operated, submitted: Manifest) -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in queued.pods(submitted, labels="ray.io/node-type=worker")}


def test_workers_share_the_lowest_network_layer_although_the_free_nodes_are_scattered(queued: Operated) -> None:
    taken = [_occupant(node) for node in ("near-0", "near-2")]
    with created(queued.cluster, taken):
        _runs(queued, _on_near("first", 8), nodes={"near-4", "near-5"})


def test_a_job_waits_for_nodes_of_a_group_with_topology_although_it_has_quota(queued: Operated) -> None:
    taken = [_occupant(f"near-{number}") for number in range(5)]
    with created(queued.cluster, taken):
        waiting = queued.submit(_on_near("waits", 8))
        # Kueue tries the group first, and in the next attempt only those after it.
        needs = "its 2 pods with 4 GPUs each on the nodes of group near"
        first = queued.await_state(waiting, lambda one: needs in one.reason, what="queued for its topology")
        assert first.stage == "queued"
        assert "does not support" not in first.reason
        retried = queued.await_state(
            waiting, lambda one: f"no room yet for {needs}" in one.reason, what="queued after another attempt"
        )
        assert "does not support" not in retried.reason
    queued.await_state(waiting, lambda one: one.stage in {"starting", "running"}, what="admitted")


def _on_near(name: str, workers: int) -> JobRequest:
    return job(name, team="research", group="near", workers=workers)


def _runs(queued: Operated, request: JobRequest, *, nodes: set[str]) -> None:
    submitted = queued.submit(request)
    wait_until(lambda: _nodes(queued, submitted) == nodes, seconds=_SECONDS)


def _occupant(node: str) -> Manifest:
    """A pod of another system that holds all GPUs of a node."""
    gpus = {"nvidia.com/gpu": "4"}
    container = {"name": "occupant", "image": "occupant", "resources": {"requests": gpus, "limits": gpus}}
    spec = {"nodeName": node, "containers": [container], "tolerations": [{"operator": "Exists"}]}
    return api_object("v1", "Pod", f"takes-{node}", namespace="default", spec=spec)

"""With how many pods an elastic job starts, how many it may have, and what makes it elastic."""

from __future__ import annotations

import pytest

from infra.spec.cluster_names import PRICE_VARIABLE, WORKER_PRICE_VARIABLE
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from infra.spec.outputs import GpuGroupOutput
from platform_charts.jobs.elastic_size import place_elastic_job
from platform_charts.jobs.placement import Placement
from platform_charts.jobs.request import JobRequest
from tests.platform_charts.jobs.targets import group_of, job, rendered, target_of, variables, with_groups, worker_of

A100, G5, L4 = group_of("p4d.24xlarge"), group_of("g5.12xlarge"), group_of("g6.12xlarge", efa_per_node=0)


def elastic(*sizes: int, **changes: object) -> JobRequest:
    return job(workers=sizes[-1], sizes=sizes, **changes)


def _shape(placement: Placement) -> tuple[int, int, tuple[int, ...], int]:
    return placement.pods, placement.gpus, placement.sizes, placement.efa


def test_a_pod_holds_the_ranks_that_it_would_hold_in_a_job_with_the_fewest() -> None:
    shapes: dict[str, tuple[GpuGroupOutput, tuple[int, ...], tuple[int, int, tuple[int, ...], int]]] = {
        "parts of a node": (L4, (2, 4, 8), (1, 2, (1, 2, 4), 0)),
        "whole nodes": (L4, (4, 8, 16), (1, 4, (1, 2, 4), 0)),
        "several nodes from the start": (L4, (8, 16), (2, 4, (2, 4), 0)),
        "whole pods only": (L4, (2, 3, 4), (1, 2, (1, 2), 0)),
        "as many as the group has nodes for": (L4, (8, 16, 32), (2, 4, (2, 4), 0)),
        "a number that is odd in nodes": (L4, (8, 12), (2, 4, (2, 3), 0)),
        "one size is left, so it is a fixed job": (L4, (16, 32), (4, 4, (), 0)),
        "whole nodes have their interfaces although the first is alone": (A100, (8, 16, 32), (1, 8, (1, 2, 4), 4)),
        "pods that share a node with one interface have none": (G5, (2, 4, 8), (1, 2, (1, 2, 4), 0)),
    }
    for case, (group, sizes, shape) in shapes.items():
        assert _shape(place_elastic_job(elastic(*sizes), with_groups(group))) == shape, case
    without = place_elastic_job(elastic(2, 4, gpus_per_worker=0, cpus_per_worker=2), target_of("prod"))
    assert _shape(without) == (2, 0, (2, 4), 0), "without GPUs a pod for each rank"


def test_parts_of_nodes_with_several_interfaces_are_refused() -> None:
    with pytest.raises(RefusedError, match=r"scale\.workers=4-16 .* 4 EFA interfaces") as refused:
        place_elastic_job(elastic(4, 8, 16), with_groups(A100))
    assert refused.value.remedy == "use a fewest number of workers that is a multiple of 8"


def test_a_group_whose_nodes_kueue_assigns_is_refused() -> None:
    group = group_of("p4d.24xlarge", network_layers=3)
    with pytest.raises(RefusedError, match="Kueue chooses the nodes"):
        place_elastic_job(elastic(8, 16), with_groups(group))


def test_the_group_has_to_be_large_enough_for_the_most() -> None:
    small = group_of("g5.12xlarge", name="small", max_nodes=1)
    placement = place_elastic_job(elastic(4, 8), with_groups(small, L4))
    assert [group.name for group in placement.groups] == [L4.name]


def test_the_job_starts_with_the_fewest_and_says_what_it_may_become() -> None:
    made = rendered(elastic(2, 4, 8), with_groups(L4))
    (group,) = made["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert [group[key] for key in ("minReplicas", "replicas", "maxReplicas")] == [1, 1, 4]
    assert _marks(made) == ("true", "1,2,4", "true")
    assert _marks(rendered(job(workers=4), with_groups(L4))) == (None, None, None), "a fixed one is not marked"
    # The pods may be on several nodes later.
    assert "podAffinity" in worker_of(made)["affinity"]


def test_the_driver_of_an_elastic_job_knows_the_price_of_its_head_and_of_a_worker() -> None:
    fixed, changing = (_prices(request) for request in (job(workers=4), elastic(2, 4)))
    assert fixed.keys() == {PRICE_VARIABLE}
    assert changing.keys() == {PRICE_VARIABLE, WORKER_PRICE_VARIABLE}
    whole = changing[PRICE_VARIABLE] + 4 * changing[WORKER_PRICE_VARIABLE]
    assert whole == pytest.approx(fixed[PRICE_VARIABLE], rel=1e-4)


def _prices(request: JobRequest) -> dict[str, float]:
    head = rendered(request, with_groups(L4))["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    given = variables(head["containers"][0])
    return {name: float(given[name]) for name in (PRICE_VARIABLE, WORKER_PRICE_VARIABLE) if name in given}


def _marks(made: Manifest) -> tuple[str | None, ...]:
    metadata = made["metadata"]
    keys = ("kueue.x-k8s.io/elastic-job", "ray-train-platform/worker-pods")
    return (*map(metadata["annotations"].get, keys), metadata["labels"].get("ray-train-platform/elastic"))

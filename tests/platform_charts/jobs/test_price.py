"""What a job's parts of nodes cost: the largest share of any resource, at the catalogue's price."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from infra.spec.catalog import load_catalog
from infra.spec.cluster_names import PRICE_VARIABLE
from platform_charts.jobs.price import Wanted, price_of_pod
from platform_charts.jobs.request import Target
from platform_charts.jobs.resources import gpu_share, node_share
from tests.platform_charts.jobs.targets import group_of, job, rendered, target_of, variables, with_groups

CATALOG = load_catalog()
NODE = group_of("g6.12xlarge")
BLOCK = datetime(2027, 1, 1, tzinfo=UTC)


def price(instance: str) -> float:
    found = CATALOG.find_instance(instance).usd_per_hour
    assert found is not None
    return found


def head_of(target: Target) -> str:
    assert target.outputs.head_instance_type is not None
    return target.outputs.head_instance_type


def test_a_pod_pays_for_the_largest_share_that_it_requests() -> None:
    """Cores and memory in multiples of a GPU's share of them; no pod pays for more than its node."""
    gpu = gpu_share(NODE, catalog=CATALOG)
    for gpus, cpus, memory, part in (
        (1, 0, 0, 1 / 4),
        (4, 0, 0, 1),
        (1, 3, 0, 3 / 4),
        (1, 0, 2, 2 / 4),
        (4, 4.5, 0, 1),
    ):
        asked = Wanted(cpus=cpus * gpu.cpus, memory_gib=memory * gpu.memory_gib, gpus=gpus)
        found = price_of_pod(asked, NODE, with_groups(NODE))
        assert found.usd_per_hour == pytest.approx(part * price("g6.12xlarge"))
        assert (found.instance_type, found.note) == ("g6.12xlarge", "")


def test_a_pod_without_a_group_pays_for_its_part_of_a_head_node() -> None:
    target = target_of("prod")
    room = node_share(head_of(target), catalog=CATALOG)
    found = price_of_pod(Wanted(cpus=1, memory_gib=room.memory_gib / 4), None, target)
    assert found.usd_per_hour == pytest.approx(price(head_of(target)) * max(1 / room.cpus, 1 / 4))


def test_one_gpu_shared_by_four_pods_is_a_quarter_of_it_for_each() -> None:
    shared = group_of("g6.12xlarge", devices_per_gpu=4)
    found = price_of_pod(Wanted(cpus=0, memory_gib=0, gpus=1), shared, with_groups(shared))
    assert found.usd_per_hour == pytest.approx(price("g6.12xlarge") / 16)


def test_a_node_without_a_price_says_why_and_spot_is_an_upper_bound() -> None:
    unknown = CATALOG.find_instance("g7e.2xlarge").model_copy(update={"usd_per_hour": None})
    catalog = CATALOG.model_copy(update={"instances": {**CATALOG.instances, "g7e.2xlarge": unknown}})
    block = group_of("p5.48xlarge", capacity_type="CAPACITY_BLOCK", drain_before=BLOCK)
    for group, note in (
        (group_of("g7e.2xlarge"), "infra/spec/catalog.yaml has no price of g7e.2xlarge"),
        (block, "prepaid, in a Capacity Block"),
        (None, "the stack's outputs do not name the type of its head nodes"),
    ):
        target = with_groups(*([] if group is None else [group]))
        outputs = target.outputs.model_copy(update={"head_instance_type": None} if group is None else {})
        found = price_of_pod(Wanted(cpus=1, memory_gib=1), group, replace(target, outputs=outputs, catalog=catalog))
        assert found.usd_per_hour is None
        assert found.note.startswith(note)
    spot = group_of("g6.12xlarge", capacity_type="SPOT")
    assert "upper bound" in price_of_pod(Wanted(cpus=1, memory_gib=1, gpus=4), spot, with_groups(spot)).note


def head_variables(target: Target, **changes: object) -> dict[str, str]:
    spec = rendered(job(**changes), target)["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    return variables(spec["containers"][0])


def test_the_head_has_the_price_of_the_whole_job_and_of_the_dearest_group_that_the_queue_may_choose() -> None:
    cheap, dear = group_of("g5.12xlarge", name="cheap"), group_of("g5.48xlarge", name="dear")
    target = with_groups(cheap, dear)
    one, any_of_both = (
        float(head_variables(target, workers=4, cpus_per_worker=1, **which)[PRICE_VARIABLE])
        for which in ({"group": "cheap"}, {"gpu_model": "a10g"})
    )
    assert any_of_both - one == pytest.approx(price("g5.48xlarge") / 2 - price("g5.12xlarge"), rel=1e-4)
    assert one > price("g5.12xlarge")


def test_the_head_of_a_job_without_a_price_has_none() -> None:
    block = group_of("p5.48xlarge", name="block", capacity_type="CAPACITY_BLOCK", drain_before=BLOCK)
    changes = {"workers": 8, "cpus_per_worker": 1, "group": "block"}
    assert PRICE_VARIABLE not in head_variables(with_groups(block), **changes)

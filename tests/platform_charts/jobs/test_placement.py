"""Which nodes a request gets, how large its pods are, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.spec.catalog import load_catalog
from infra.spec.errors import PlatformError, RefusedError, SettingsError
from platform_charts.jobs.capacity_end import lasting_capacity
from platform_charts.jobs.placement import find_team, gpu_model, place_job
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.resources import gpu_share
from tests.platform_charts.jobs.targets import group_of, job, target_of, with_groups

CATALOG = load_catalog()
GPU_TYPES = sorted(name for name, instance in CATALOG.instances.items() if instance.gpu is not None)
A100, L4, T4 = group_of("p4d.24xlarge"), group_of("g6.12xlarge"), group_of("g4dn.xlarge")


def test_ranks_are_spread_evenly_over_whole_nodes_with_all_their_interfaces_or_fill_a_part_of_one() -> None:
    for workers, shape in ((16, (2, 8, 4)), (3, (1, 3, 0)), (12, (2, 6, 4)), (32, (A100.max_nodes, 8, 4))):
        placement = place_job(job(workers=workers), with_groups(A100))
        assert (placement.pods, placement.gpus, placement.efa) == shape, workers


def test_the_cheapest_group_that_has_room_is_taken() -> None:
    large, small = group_of("g5.12xlarge"), group_of("g6e.xlarge")  # 5.67 USD an hour for 4 GPUs, 1.86 for one
    for request, groups, taken in (
        (job(workers=4), (A100, L4), L4),
        (job(workers=4, group=A100.name), (A100, L4), A100),
        (job(workers=1, cpus_per_worker=4), (T4, L4), L4),  # too few cores
        (job(workers=1, cpus_per_worker=1), (small, large), large),  # a part of a node costs a part of its price
        (job(workers=4, cpus_per_worker=1), (L4, T4), T4),  # 4.60 and 4 x 0.53 USD an hour
    ):
        assert place_job(request, with_groups(*groups)).groups == (taken,), (request.workers, taken.name)
    assert place_job(job(workers=4, cpus_per_worker=1), with_groups(L4, T4)).pods == 4


def test_where_prices_are_unknown_the_group_with_fewer_pods_is_taken_and_then_the_first_name() -> None:
    unknown = {name: instance.model_copy(update={"usd_per_hour": None}) for name, instance in CATALOG.instances.items()}
    groups = (group_of("g4dn.xlarge", name="a"), group_of("g6.12xlarge", name="c"), group_of("g6.12xlarge", name="b"))
    target = replace(with_groups(*groups), catalog=CATALOG.model_copy(update={"instances": unknown}))
    placement = place_job(job(workers=4, cpus_per_worker=1), target)
    assert ([group.name for group in placement.groups], placement.pods) == (["b"], 1)


def test_a_known_price_comes_before_an_unknown_one() -> None:
    instances = {**CATALOG.instances}
    instances["g6.12xlarge"] = instances["g6.12xlarge"].model_copy(update={"usd_per_hour": None})
    target = replace(with_groups(L4, A100), catalog=CATALOG.model_copy(update={"instances": instances}))
    assert place_job(job(workers=4), target).groups == (A100,)


def test_the_pods_of_a_job_are_interruptible_on_spot_nodes_only() -> None:
    spot = group_of("g6.12xlarge", capacity_type="SPOT")
    assert place_job(job(workers=4), with_groups(spot)).is_interruptible
    assert not place_job(job(workers=4), with_groups(L4)).is_interruptible
    assert not place_job(job(gpus_per_worker=0, cpus_per_worker=1), target_of("dev")).is_interruptible


def test_the_share_of_a_pod_is_that_of_its_gpus() -> None:
    one, three = (place_job(job(workers=count), with_groups(A100)).share for count in (1, 3))
    assert three == (3 * one.cpus, 3 * one.memory_gib)
    assert place_job(job(workers=1, cpus_per_worker=11), with_groups(A100)).share.cpus == 11, "all cores of its GPU"


def test_a_job_runs_on_a_capacity_block_only_if_it_names_it() -> None:
    block = group_of("p4d.24xlarge", name="block", drain_before=datetime(2027, 1, 1, tzinfo=UTC))
    target = with_groups(block)
    assert place_job(job(group="block"), target).groups == (block,)
    with pytest.raises(RefusedError, match="none but Capacity Blocks"):
        place_job(job(), target)


def test_a_job_shares_a_gpu_only_if_it_names_the_group() -> None:
    shared = group_of("g4dn.xlarge", name="shared", devices_per_gpu=4)
    target = with_groups(shared)
    assert place_job(job(group="shared", workers=1, cpus_per_worker=1), target).groups == (shared,)
    with pytest.raises(RefusedError, match="groups whose GPUs are shared"):
        place_job(job(workers=1, cpus_per_worker=1), target)


def test_pods_that_share_a_gpu_share_the_cores_and_the_memory_of_its_node() -> None:
    whole = group_of("g6.12xlarge", name="whole")
    shared = group_of("g6.12xlarge", name="shared", devices_per_gpu=4)
    of_gpu = place_job(job(group="whole", workers=1, cpus_per_worker=1), with_groups(whole)).share
    assert of_gpu.cpus >= 8
    of_quarter = place_job(job(group="shared", workers=1, cpus_per_worker=1), with_groups(shared)).share
    assert of_quarter == (of_gpu.cpus // 4, of_gpu.memory_gib // 4)
    asks = place_job(job(group="shared", workers=1, cpus_per_worker=of_gpu.cpus), with_groups(shared)).share
    assert asks == (of_gpu.cpus, of_gpu.memory_gib // 4)
    with pytest.raises(RefusedError, match=f"exceeds {of_gpu.cpus}, the cores per GPU"):
        place_job(job(group="shared", workers=1, cpus_per_worker=of_gpu.cpus + 1), with_groups(shared))
    with pytest.raises(RefusedError, match="NCCL supports one rank per GPU, not 2 on shared ones"):
        place_job(job(group="shared", workers=2, cpus_per_worker=1), with_groups(shared))


def test_ranks_without_a_gpu_go_to_the_head_nodes_one_pod_each() -> None:
    placement = place_job(job(gpus_per_worker=0, workers=3, cpus_per_worker=1), target_of("dev"))
    assert (placement.groups, placement.pods, placement.gpus, placement.share) == ((), 3, 0, (1, 4))


WRONG: list[tuple[dict[str, Any], type[PlatformError], str]] = [
    ({"team": "reserch"}, SettingsError, "did you mean research?"),
    ({"team": "reserch"}, SettingsError, "team='reserch': stack prod has no such team"),
    ({"group": "a10"}, SettingsError, "group='a10': stack prod has no such GPU group"),
    ({"workers": 128}, RefusedError, "no GPU group of stack prod can take resnet101:\n  l4 (g6.12xlarge): 128 GPUs"),
    ({"workers": 11, "group": "l4"}, RefusedError, "11 ranks do not divide evenly over 3 nodes; use 9 or 12"),
    ({"group": "a10"}, SettingsError, "did you mean a100?"),
    ({"gpus_per_worker": 0, "group": "a100"}, SettingsError, "group=a100 has GPU nodes, but gpus_per_worker=0"),
    ({"workers": 64, "group": "l4"}, RefusedError, "64 GPUs need 16 nodes of 4, it has at most 8"),
    ({"cpus_per_worker": 12, "group": "a100"}, RefusedError, "cpus_per_worker=12 exceeds 11"),
]


def test_a_request_that_does_not_fit_is_refused_with_the_numbers() -> None:
    for changes, error, message in WRONG:
        with pytest.raises(error) as refusal:
            render_job(job(**changes), target_of("prod"))
        assert message in str(refusal.value)


def test_a_stack_without_teams_or_groups_says_what_to_add() -> None:
    bare = with_groups()
    teamless = replace(bare, outputs=bare.outputs.model_copy(update={"teams": ()}))
    with pytest.raises(SettingsError, match="add a team to the environment's file"):
        find_team("research", teamless)
    with pytest.raises(SettingsError, match="set gpus_per_worker=0"):
        place_job(job(group="a100"), bare)
    with pytest.raises(RefusedError, match="it has none but Capacity Blocks"):
        place_job(job(), bare)


@given(type_=st.sampled_from(GPU_TYPES), workers=st.integers(1, 40), cpus=st.integers(1, 24))
def test_a_placement_holds_every_rank_within_the_group(type_: str, workers: int, cpus: int) -> None:
    group = group_of(type_)
    try:
        placement = place_job(job(workers=workers, cpus_per_worker=cpus), with_groups(group))
    except RefusedError:
        return
    assert placement.pods * placement.gpus == workers
    assert placement.pods <= group.max_nodes
    assert placement.gpus <= group.gpus_per_node
    assert placement.share.cpus >= placement.gpus * cpus


def test_the_shares_of_a_node_leave_room_for_the_system_and_waste_little() -> None:
    for type_ in GPU_TYPES:
        instance, group = CATALOG.find_instance(type_), group_of(type_)
        whole = gpu_share(group, catalog=CATALOG).times(group.gpus_per_node)
        huge_pages_gib = instance.efa_huge_pages_mib / 2**10 if group.efa_per_node else 0
        # Half a core and 1.5 GiB for daemon sets, and 7 % of the memory that the system does not show.
        assert 0.74 * instance.vcpus <= whole.cpus <= instance.vcpus - 0.5, type_
        assert whole.memory_gib + huge_pages_gib + 1.5 <= 0.93 * instance.memory_gib, type_
        assert whole.memory_gib >= 0.74 * instance.memory_gib, type_


def test_a_pod_gets_the_part_of_the_nodes_nvme_that_it_has_of_the_gpus() -> None:
    group = group_of("p4d.24xlarge", cache_gib=6000)
    parts = [place_job(job(workers=workers), with_groups(group)).cache_gib for workers in (1, 3, 8, 16)]
    assert parts == [750, 2250, 6000, 6000]
    shared = group_of("g4dn.xlarge", name="shared", cache_gib=40, devices_per_gpu=4)
    assert place_job(job(workers=1, cpus_per_worker=1, group="shared"), with_groups(shared)).cache_gib == 10


def test_a_job_that_caches_its_dataset_gets_a_group_with_nvme() -> None:
    cheap, with_nvme = group_of("g6.12xlarge", name="cheap"), group_of("p4d.24xlarge", name="nvme", cache_gib=100)
    placement = place_job(job(workers=4, needs_cache=True), with_groups(cheap, with_nvme))
    assert [group.name for group in placement.groups] == ["nvme"]


def test_a_job_in_fp8_gets_a_group_whose_gpus_have_it_though_another_is_cheaper() -> None:
    assert place_job(job(workers=1, cpus_per_worker=1), with_groups(T4, L4)).groups == (T4,)
    assert place_job(job(workers=1, cpus_per_worker=1, needs_float8=True), with_groups(T4, L4)).groups == (L4,)


def test_a_job_in_fp8_is_refused_on_older_gpus_with_the_instance_types_that_can() -> None:
    for instance, choice, capability in (
        ("g4dn.xlarge", "group", "7.5"),
        ("g5.xlarge", "group", "8.6"),
        ("p4d.24xlarge", "gpu_model", "8.0"),
    ):
        old = group_of(instance)
        chosen = {"group": old.name, "gpu_model": gpu_model(old, CATALOG)}[choice]
        request = job(workers=1, cpus_per_worker=1, needs_float8=True, **{choice: chosen})
        with pytest.raises(RefusedError, match="capability 8.9 or higher, its have " + capability) as refusal:
            place_job(request, with_groups(old, L4))
        assert "those of g6, g6e, g7, g7e, p5, p5e, p5en, p6-b200, p6-b300" in str(refusal.value)


def test_of_the_groups_of_a_model_those_without_nvme_do_not_cache_a_dataset() -> None:
    small, without = group_of("p4d.24xlarge", name="small", cache_gib=100), group_of("p4d.24xlarge", name="without")
    large = group_of("p4d.24xlarge", name="large", cache_gib=800)
    request = job(workers=4, gpu_model="a100", needs_cache=True)
    placement = place_job(request, with_groups(large, without, small))
    assert [group.name for group in placement.groups] == ["large", "small"]
    assert placement.cache_gib == 50
    assert "data.cache" in placement.left_out[0]
    for gpus in (0, 1):
        with pytest.raises(RefusedError, match=r"NVMe disks.*data\.cache"):
            place_job(job(workers=4, gpus_per_worker=gpus, cpus_per_worker=1, needs_cache=True), with_groups(L4))


NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
BLOCK = with_groups(
    group_of("p5.48xlarge", name="block", capacity_type="CAPACITY_BLOCK", drain_before="2026-11-22T02:30:00+00:00")
)


def test_a_job_that_ends_before_its_block_or_on_capacity_without_an_end_is_accepted() -> None:
    lasting_capacity(job(group="block", deadline_hours=18.5), BLOCK, now=NOW)
    for group in (None, "a100"):
        lasting_capacity(job(group=group, deadline_hours=24 * 365), target_of("prod"), now=NOW)


def test_a_job_that_may_outlive_its_block_is_refused_with_both_times_and_a_remedy() -> None:
    with pytest.raises(RefusedError) as refusal:
        lasting_capacity(job(group="block", deadline_hours=24), BLOCK, now=NOW)
    assert "may run for 24 h, until 2026-11-22 08:00+00:00" in str(refusal.value)
    assert "has to be empty by 2026-11-22 02:30+00:00" in str(refusal.value)
    assert "--deadline-hours 18.5 at most" in refusal.value.remedy


@given(hours=st.floats(min_value=0.1, max_value=18.4))
def test_the_proposed_deadline_is_accepted(hours: float) -> None:
    now = NOW + timedelta(hours=hours)
    with pytest.raises(RefusedError) as refusal:
        lasting_capacity(job(group="block", deadline_hours=24), BLOCK, now=now)
    proposed = float(refusal.value.remedy.split()[1])
    lasting_capacity(job(group="block", deadline_hours=proposed), BLOCK, now=now)


def test_a_job_on_a_block_that_has_ended_is_refused() -> None:
    after = NOW + timedelta(days=2)
    with pytest.raises(RefusedError, match=r"had to be empty by 2026-11-22 02:30\+00:00; it is 2026-11-23"):
        lasting_capacity(job(group="block", deadline_hours=0.5), BLOCK, now=after)

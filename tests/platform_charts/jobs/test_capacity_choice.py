"""Jobs that name a GPU model or list groups: which groups they may use, and pods that fit all of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.spec.catalog import load_catalog
from infra.spec.errors import PlatformError, RefusedError, SettingsError
from infra.spec.manifest import Manifest
from infra.spec.outputs import GpuGroupOutput
from platform_charts.jobs.capacity_end import lasting_capacity, without_blocks
from platform_charts.jobs.placement import place_job
from platform_charts.jobs.price import describe_choice, usd_per_hour
from platform_charts.jobs.resources import gpu_share
from tests.platform_charts.jobs.targets import group_of, job, rendered, variables, with_groups, worker_of
from training.cluster.job_manifest import options_of

SPOT_TAINT = {"key": "ray-train-platform/spot", "value": "true", "effect": "NoSchedule"}
NOW = datetime(2027, 1, 1, tzinfo=UTC)

RESERVED = group_of("g5.12xlarge", name="reserved")
ON_DEMAND = group_of("g5.12xlarge", name="on-demand")
SPOT = group_of("g5.12xlarge", name="spot", capacity_type="SPOT", efa_per_node=0, taints=(*RESERVED.taints, SPOT_TAINT))
L4 = group_of("g6.12xlarge", name="l4")


def names(groups: tuple[GpuGroupOutput, ...]) -> list[str]:
    """Names of groups."""
    return [group.name for group in groups]


def allowed(worker: Manifest) -> list[str]:
    """The groups that a worker's node affinity allows."""
    [term] = worker["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    [expression] = term["matchExpressions"]
    assert (expression["key"], expression["operator"]) == ("ray-train-platform/group", "In")
    return list(expression["values"])


def of_model(**changes: Any) -> Any:  # noqa: ANN401 - a JobRequest
    """A job on 8 A10G."""
    return job(**{"workers": 8, "gpu_model": "a10g", **changes})


def test_a_job_that_names_a_model_may_use_every_group_that_has_it_in_order() -> None:
    placement = place_job(of_model(), with_groups(RESERVED, L4, ON_DEMAND, SPOT))
    assert names(placement.groups) == ["reserved", "on-demand"]
    assert not placement.is_interruptible


def listing(groups: str, **changes: Any) -> Any:  # noqa: ANN401 - a JobRequest
    """A job on 8 GPUs that lists its groups."""
    return job(**{"workers": 8, "group": groups, **changes})


def test_a_job_may_list_groups_spot_included_in_the_order_of_the_queue() -> None:
    target = with_groups(RESERVED, L4, ON_DEMAND, SPOT)
    placement = place_job(listing("reserved,on-demand,spot"), target)
    assert names(placement.groups) == ["reserved", "on-demand", "spot"]
    assert placement.is_interruptible
    assert names(place_job(listing("reserved,l4"), target).groups) == ["reserved", "l4"]


def test_a_list_in_another_order_than_the_queues_is_refused_with_that_order() -> None:
    target = with_groups(RESERVED, ON_DEMAND, SPOT)
    for wrong in ("on-demand,reserved", "reserved,on-demand,reserved"):
        with pytest.raises(
            SettingsError, match="the queue tries these groups in the order reserved,on-demand"
        ) as refused:
            place_job(listing(wrong), target)
        assert (
            refused.value.remedy == "write group=reserved,on-demand, or change capacity_order in the environment's file"
        )


def test_a_listed_group_that_cannot_take_the_job_is_left_out_with_the_reason_and_an_unknown_one_is_refused() -> None:
    small = group_of("g5.12xlarge", name="small", max_nodes=1)
    placement = place_job(listing("small,on-demand"), with_groups(small, ON_DEMAND))
    assert names(placement.groups) == ["on-demand"]
    assert placement.left_out == ("small (g5.12xlarge): 8 GPUs need 2 nodes of 4, it has at most 1",)
    with pytest.raises(RefusedError, match="none of the groups small,on-demand of stack prod can take"):
        place_job(listing("small,on-demand", workers=64), with_groups(small, ON_DEMAND))
    with pytest.raises(SettingsError, match="group='spt': stack prod has no such GPU group") as unknown:
        place_job(listing("reserved,spt"), with_groups(RESERVED, SPOT))
    assert unknown.value.remedy == "did you mean spot?"


def test_a_job_that_is_resumed_keeps_its_groups_whichever_it_had() -> None:
    for groups in ("reserved", "reserved,on-demand"):
        manifest = rendered(listing(groups), with_groups(RESERVED, ON_DEMAND))
        assert options_of(manifest).group == groups
        [workers] = manifest["spec"]["rayClusterSpec"]["workerGroupSpecs"]
        workers["template"]["spec"].setdefault("nodeSelector", {})["ray-train-platform/group"] = "reserved"
        assert options_of(manifest).group == groups


def test_its_pods_are_bound_to_the_groups_together_and_tolerate_their_taints_but_not_that_of_no_capacity() -> None:
    worker = worker_of(rendered(of_model(spot=True), with_groups(RESERVED, L4, SPOT)))
    assert allowed(worker) == ["reserved", "spot"]
    assert "nodeSelector" not in worker
    assert [one["key"] for one in worker["tolerations"]] == ["nvidia.com/gpu", "ray-train-platform/spot"]
    assert worker["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]


def test_the_pods_fit_the_smallest_node_of_the_groups() -> None:
    small, large = group_of("g5.xlarge", name="small", max_nodes=1), group_of("g5.48xlarge", name="large")
    placement = place_job(of_model(workers=1, cpus_per_worker=1), with_groups(large, small))
    assert names(placement.groups) == ["large", "small"]
    least = gpu_share(small, catalog=load_catalog())
    assert placement.share.memory_gib == least.memory_gib < gpu_share(large, catalog=load_catalog()).memory_gib
    assert placement.share.cpus == least.cpus


def test_the_first_group_sets_the_size_of_the_pods_and_groups_with_smaller_nodes_are_left_out() -> None:
    large, small = group_of("g5.48xlarge", name="large"), group_of("g5.12xlarge", name="small")
    first_large = place_job(of_model(cpus_per_worker=1), with_groups(large, small))
    assert (names(first_large.groups), first_large.pods, first_large.gpus) == (["large"], 1, 8)
    assert first_large.left_out == ("small (g5.12xlarge): a pod of the job has 8 GPUs, its nodes have 4",)
    first_small = place_job(of_model(cpus_per_worker=1), with_groups(small, large))
    assert (names(first_small.groups), first_small.pods, first_small.gpus) == (["small", "large"], 2, 4)


def test_pods_ask_for_efa_only_if_all_groups_have_it() -> None:
    plain = group_of("g5.12xlarge", name="plain", efa_per_node=0)
    with_efa = group_of("g5.12xlarge", name="fabric", efa_per_node=1)
    assert place_job(of_model(), with_groups(with_efa, ON_DEMAND)).efa == 1
    assert place_job(of_model(), with_groups(with_efa, plain)).efa == 0
    worker = worker_of(rendered(of_model(), with_groups(with_efa, plain)))
    assert "FI_PROVIDER" not in variables(worker["containers"][0])


def test_groups_whose_gpus_are_shared_are_left_out() -> None:
    shared = group_of("g5.12xlarge", name="shared", devices_per_gpu=4)
    placement = place_job(of_model(workers=1), with_groups(shared, ON_DEMAND))
    assert names(placement.groups) == ["on-demand"]
    assert placement.left_out == (
        "shared (g5.12xlarge): its GPUs are shared; only a job that names this group alone uses it",
    )


def test_a_capacity_block_is_among_them_if_the_job_ends_before_it() -> None:
    block = group_of("p5.48xlarge", name="block", drain_before=NOW + timedelta(hours=10))
    target = with_groups(block, group_of("p5.48xlarge", name="h100"))
    short, long = (job(workers=8, gpu_model="h100", deadline_hours=hours, cpus_per_worker=1) for hours in (9, 11))
    assert names(place_job(short, lasting_capacity(short, target, now=NOW)).groups) == ["block", "h100"]
    assert names(place_job(long, lasting_capacity(long, target, now=NOW)).groups) == ["h100"]
    with pytest.raises(RefusedError, match="group block is a Capacity Block that has to be empty by 2027-01-01 10:00"):
        lasting_capacity(long, with_groups(block), now=NOW)
    with pytest.raises(RefusedError, match="group block is a Capacity Block that has to be empty by 2027-01-01 10:00"):
        lasting_capacity(job(group="block,h100", deadline_hours=11), target, now=NOW)


def test_the_price_is_that_of_the_most_expensive_group_and_the_choice_names_each() -> None:
    large, small = group_of("g5.48xlarge", name="large"), group_of("g5.xlarge", name="small")
    target = with_groups(large, small)
    placement = place_job(of_model(workers=1, cpus_per_worker=1), target)
    dearer, cheaper = (load_catalog().instances[one.instance_type].usd_per_hour or 0 for one in (large, small))
    assert usd_per_hour(placement, target) == max(dearer / 8, cheaper) > 0
    text = describe_choice(placement, target)
    assert "1. large (g5.48xlarge, on demand)" in text
    assert f"2. small (g5.xlarge, on demand), about ${cheaper:,.2f} an hour" in text


WRONG: list[tuple[dict[str, Any], type[PlatformError], str]] = [
    ({"gpu_model": "a10"}, SettingsError, "gpu_model='a10': stack prod has no group with such GPUs"),
    ({"gpu_model": "a10"}, SettingsError, "did you mean a10g?"),
    ({"gpu_model": "h100"}, SettingsError, "one of a10g, l4"),
    ({"group": "reserved"}, SettingsError, "group=reserved and gpu_model=a10g are mutually exclusive"),
    ({"gpus_per_worker": 0}, SettingsError, "gpu_model=a10g with gpus_per_worker=0: the job has no GPU"),
    ({"gpu_model": None, "spot": True}, SettingsError, "spot=true without gpu_model"),
    ({"workers": 64}, RefusedError, "reserved (g5.12xlarge): 64 GPUs need 16 nodes of 4, it has at most 4"),
    ({"workers": 64}, RefusedError, "spot (g5.12xlarge): its nodes are spot"),
    ({"workers": 7}, RefusedError, "7 ranks do not divide evenly over 2 nodes"),
]


def test_a_choice_that_no_group_can_serve_is_refused_with_every_reason() -> None:
    for changes, error, message in WRONG:
        with pytest.raises(error) as refusal:
            place_job(of_model(**changes), with_groups(RESERVED, SPOT, L4))
        assert message in str(refusal.value)


def test_workers_in_a_group_with_topology_are_placed_by_its_lowest_layer() -> None:
    near = group_of("g5.12xlarge", name="near", network_layers=4, efa_per_node=1)
    target = with_groups(near, ON_DEMAND)
    several, single = (rendered(of_model(workers=count), target) for count in (8, 4))
    assert _topology(several) == {"kueue.x-k8s.io/podset-preferred-topology": "topology.k8s.aws/network-node-layer-4"}
    assert _topology(single) == {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
    assert "affinity" not in worker_of(several)
    placement = place_job(of_model(), target)
    assert names(placement.groups) == ["near"]
    assert "its topology differs from that of near" in placement.left_out[0]


def _topology(manifest: Manifest) -> dict[str, str]:
    [group] = manifest["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    notes = group["template"]["metadata"]["annotations"]
    return {key: value for key, value in notes.items() if "topology" in key}


def test_a_schedule_never_chooses_a_capacity_block() -> None:
    block = group_of("g5.12xlarge", name="block", drain_before=NOW + timedelta(days=900))
    placement = place_job(of_model(), without_blocks(with_groups(block, ON_DEMAND)))
    assert names(placement.groups) == ["on-demand"]

"""Resolved node groups: labels, taints, devices and allocatable resources."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from infra.spec.catalog import load_catalog
from infra.spec.node_group import NodeGroups, resolve_node_groups
from infra.spec.node_labels import GPU_TAINT, HEAD_TAINT, SPOT_TAINT, START_UP_TAINT
from infra.spec.settings import from_mapping
from tests.infra.spec.samples import changed, dev_sections


def groups(changes: dict[str, Any]) -> NodeGroups:
    """The groups of the sample environment with values at dotted paths replaced."""
    return resolve_node_groups(from_mapping(changed(dev_sections(), changes), file="sample"), catalog=load_catalog())


def test_a_group_has_the_labels_and_taints_of_its_kind() -> None:
    """Only pods of jobs run on head nodes, which may be none."""
    found = groups({})
    for one, taints in ((found.system, ()), (found.heads, (HEAD_TAINT,))):
        labels = {"ray-train-platform/group": one.name, "ray-train-platform/balanced": one.name}
        assert (one.labels, one.taints, one.start_up_taints) == (labels, taints, ())
        assert (one.ami_type, one.expected_devices) == ("AL2023_x86_64_STANDARD", {})
    assert (found.heads.min_size, found.heads.instance.gpus) == (0, 0)
    spot, on_demand = found.gpu
    assert (spot.taints, on_demand.taints) == ((GPU_TAINT, SPOT_TAINT), (GPU_TAINT,))
    assert spot.start_up_taints == on_demand.start_up_taints == (START_UP_TAINT,)
    assert spot.ami_type == "AL2023_x86_64_NVIDIA"


def test_a_shared_gpu_is_several_devices_and_a_node_expects_whole_gpus() -> None:
    t4 = groups({"gpu_groups.0.sharing": {"time_slices": 4}}).gpu[0]
    assert (t4.gpu_devices, t4.allocatable["nvidia.com/gpu"]) == (4, "4")
    assert t4.expected_devices == {"nvidia.com/gpu": 1}
    assert t4.node_labels == {**t4.labels, "nvidia.com/device-plugin.config": "time-slices-4"}


def test_pods_of_an_efa_node_may_request_interfaces_and_huge_pages() -> None:
    h100 = groups({"network.pods_per_node": 50}).gpu[1]
    # nodeadm reserves memory for the type's own maximum of pods, whatever maxPods is.
    memory = int(2048 * 2**30 * 0.925) - (255 + 11 * 737 + 100) * 2**20 - 5128 * 2 * 2**20
    assert h100.allocatable == {
        "cpu": "191450m",
        "memory": str(memory),
        "pods": "50",
        "nvidia.com/gpu": "8",
        "vpc.amazonaws.com/efa": "32",
        "hugepages-2Mi": str(5128 * 2 * 2**20),
        "ephemeral-storage": str(8 * 3800 * 10**9 * 85 // 100),
    }


def test_a_node_of_several_types_offers_what_every_type_has() -> None:
    spot = {"kind": "spot", "instance_types": ["g5.2xlarge"]}
    one, both = (
        groups({"gpu_groups.0": {"name": "t4", "instance_type": "g5.xlarge", "max_size": 4, "capacity": capacity}})
        for capacity in ({"kind": "spot"}, spot)
    )
    assert both.gpu[0].allocatable == one.gpu[0].allocatable


def test_images_are_pulled_in_parallel_where_node_and_disk_are_large_enough() -> None:
    throughputs = {one.name: one.disk_throughput_mib for one in groups({}).all()}
    assert throughputs == {"system": 125, "heads": 600, "t4": 125, "h100": 125}
    assert [one.pulls_in_parallel for one in groups({}).gpu] == [False, True]  # 4 and 192 vCPUs
    no_raid = groups({"gpu_groups.1.local_nvme": False, "gpu_groups.1.disk_gib": 300}).gpu[1]
    assert (no_raid.disk_throughput_mib, no_raid.pulls_in_parallel) == (600, True)
    assert (no_raid.ephemeral_bytes, no_raid.cache_gib) == (int(300 * 2**30 * 0.85), 0)
    slow = groups({"gpu_groups.1.local_nvme": False, "gpu_groups.1.disk_throughput_mib": 300}).gpu[1]
    assert (slow.disk_throughput_mib, slow.pulls_in_parallel) == (300, False)


def test_a_group_of_several_zones_is_one_managed_group_for_each_zone_that_gets_a_node() -> None:
    spread = groups({"system_nodes": {"min_size": 3, "desired_size": 4, "max_size": 8}}).system.zone_groups
    assert [(one.name, one.zone) for one in spread] == [
        ("system-us-east-1a", "us-east-1a"),
        ("system-us-east-1b", "us-east-1b"),
        ("system-us-east-1c", "us-east-1c"),
    ]
    sizes = [(one.min_size, one.desired_size, one.max_size) for one in spread]
    assert sizes == [(1, 2, 3), (1, 1, 3), (1, 1, 2)]
    heads = groups({"head_nodes": {"max_size": 2}}).heads
    assert [(one.name, one.max_size) for one in heads.zone_groups] == [("heads-us-east-1a", 1), ("heads-us-east-1b", 1)]


def test_a_group_of_one_zone_keeps_its_name_and_each_capacity_block_is_one_of_its_own() -> None:
    """A new block is then a new managed group, and none is updated while it has nodes, which EKS refuses."""
    [h100] = groups({}).gpu[1].zone_groups
    assert (h100.name, h100.zone, h100.max_size) == ("h100", "us-east-1a", 2)
    block = {"kind": "capacity_block", "id": "cr-0123456789abcdef0", "availability_zone": "us-east-1a"}
    capacity = {**block, "ends": "2030-01-01T00:00:00Z"}
    [part] = groups({"gpu_groups.1.capacity": capacity, "gpu_groups.1.placement": "none"}).gpu[1].zone_groups
    assert part.name == "h100-9abcdef0"


def test_a_zone_may_hold_all_nodes_of_a_gpu_group_because_a_job_runs_in_one_zone() -> None:
    t4 = groups({"gpu_groups.0.min_size": 1, "gpu_groups.0.desired_size": 2}).gpu[0]
    assert [(one.min_size, one.desired_size, one.max_size) for one in t4.zone_groups] == [
        (1, 1, 4),
        (0, 1, 4),
        (0, 0, 4),
    ]


@given(st.integers(1, 40), st.integers(2, 3), st.data())
def test_the_zone_groups_add_up_to_the_group(largest: int, zones: int, data: st.DataObject) -> None:
    desired = data.draw(st.integers(0, largest))
    smallest = data.draw(st.integers(0, desired))
    sizes = {"min_size": smallest, "desired_size": desired, "max_size": largest}
    network = {"network.availability_zones": ["us-east-1a", "us-east-1b", "us-east-1c"][:zones]}
    found = groups({**network, "head_nodes": sizes}).heads.zone_groups
    assert [sum(getattr(one, key) for one in found) for key in sizes] == list(sizes.values())
    assert all(0 <= one.min_size <= one.desired_size <= one.max_size and one.max_size > 0 for one in found)


def test_the_queue_tries_paid_capacity_first_and_spot_last() -> None:
    reserved = {"kind": "reservation", "id": "cr-0123456789abcdef0", "availability_zone": "us-east-1a"}
    block = {**reserved, "kind": "capacity_block", "id": "cr-0123456789abcdef1", "ends": "2030-01-01T00:00:00Z"}
    kinds = {"spot": {"kind": "spot"}, "on-demand": {"kind": "on_demand"}, "reserved": reserved, "block": block}
    listed = [
        {"name": name, "instance_type": "p5.48xlarge", "capacity": kind, "max_size": 1} for name, kind in kinds.items()
    ]
    changes = {"gpu_groups": listed, "teams.0.gpus": {}}
    by_kind = groups(changes).by_preference()
    assert [one.name for one in by_kind] == ["block", "reserved", "on-demand", "spot"]
    of_the_team = groups({**changes, "capacity_order": ["spot", "reserved"]}).by_preference()
    assert [one.name for one in of_the_team] == ["spot", "reserved", "block", "on-demand"]


def test_the_cache_is_what_images_and_temporary_files_leave_of_the_nvme() -> None:
    """A p5.48xlarge has 8 disks of 3800 GB, of which 85 % are usable, and up to 8 pods with 20 GiB in /tmp each."""
    t4, h100 = groups({}).gpu
    assert h100.cache_gib == 8 * 3800 * 10**9 * 85 // 100 // 2**30 - 32 - 8 * 20
    assert t4.cache_gib == 125 * 10**9 * 85 // 100 // 2**30 - 32 - 20

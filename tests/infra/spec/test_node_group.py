"""Resolved node groups: labels, taints, devices and allocatable resources."""

from __future__ import annotations

from typing import Any

from infra.spec.catalog import load_catalog
from infra.spec.node_group import NodeGroups, resolve_node_groups
from infra.spec.node_labels import GPU_TAINT, SPOT_TAINT, START_UP_TAINT
from infra.spec.settings import from_mapping
from tests.infra.spec.samples import changed, dev_sections


def groups(changes: dict[str, Any]) -> NodeGroups:
    """The groups of the sample environment with values at dotted paths replaced."""
    return resolve_node_groups(from_mapping(changed(dev_sections(), changes), file="sample"), catalog=load_catalog())


def test_the_system_group_has_one_label_and_no_taints() -> None:
    system = groups({}).system
    assert (system.labels, system.taints, system.start_up_taints) == ({"ray-train-platform/group": "system"}, (), ())
    assert (system.ami_type, system.expected_devices) == ("AL2023_x86_64_STANDARD", {})


def test_a_gpu_group_has_its_taints() -> None:
    spot, on_demand = groups({}).gpu
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
    memory = int(2048 * 2**30 * 0.925) - (255 + 11 * 50 + 100) * 2**20 - 5128 * 2 * 2**20
    assert h100.allocatable == {
        "cpu": "191450m",
        "memory": str(memory),
        "pods": "50",
        "nvidia.com/gpu": "8",
        "vpc.amazonaws.com/efa": "32",
        "hugepages-2Mi": str(5128 * 2 * 2**20),
        "ephemeral-storage": str(8 * 3800 * 10**9 * 85 // 100),
    }


def test_ephemeral_storage_is_the_root_volume_without_raid() -> None:
    h100 = groups({"gpu_groups.1.local_nvme": False, "gpu_groups.1.disk_gib": 300}).gpu[1]
    assert h100.ephemeral_bytes == int(300 * 2**30 * 0.85)

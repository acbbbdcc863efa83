"""Nodes that are not there: as the cluster of an environment would show them, for the scheduler to place pods on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infra.lifecycle.sandbox.layout import FAKE_NODE_ANNOTATION
from infra.spec.capacity import EFA_HUGE_PAGES_BYTES, launch_plan
from infra.spec.catalog import Catalog, InstanceType
from infra.spec.outputs import GROUP_LABEL, Taint, gpu_group_output
from infra.spec.settings.stack import StackSettings

_MIB = 2**20
_SYSTEM_DISK_BYTES = 100 * 2**30


def fake_nodes(settings: StackSettings, *, catalog: Catalog) -> tuple[dict[str, Any], ...]:
    """Every node an environment may have: the system group and all GPU groups at their largest size.

    How GPUs are shared is left aside, as in `infra.spec.outputs.GpuGroupOutput`.
    """
    return (*_system_nodes(settings, catalog), *_gpu_nodes(settings, catalog))


def allocatable_cpu_millis(vcpus: int) -> int:
    """What pods get of the cores.

    The kubelet on EKS keeps 6 % of the first, 1 % of the second, 0.5 % of the next two and 0.25 % of every other
    (awslabs/amazon-eks-ami, nodeadm, kubelet defaults).
    """
    shares = (60, 10, 5, 5)
    reserved = sum(shares[:vcpus]) + 2.5 * max(0, vcpus - len(shares))
    return vcpus * 1000 - int(reserved)


_UNSEEN_MEMORY = 0.075
"""Part of a machine's memory that its operating system never sees (Karpenter, VM_MEMORY_OVERHEAD_PERCENT)."""


def allocatable_memory_bytes(memory_gib: int, *, max_pods: int, huge_pages_bytes: int = 0) -> int:
    """What pods get of the memory the system sees.

    The kubelet on EKS keeps 255 MiB, 11 MiB a pod, and 100 MiB before it evicts (same source); huge pages are counted
    apart.
    """
    seen = int(memory_gib * 2**30 * (1 - _UNSEEN_MEMORY))
    return seen - (255 + 11 * max_pods + 100) * _MIB - huge_pages_bytes


def _system_nodes(settings: StackSettings, catalog: Catalog) -> Iterator[dict[str, Any]]:
    system, zones = settings.system_nodes, settings.network.availability_zones
    name = settings.launch_requests()[0].name
    for number in range(system.max_size):
        yield _node(
            f"{name}-{number}",
            catalog.find(system.instance_type),
            settings,
            zone=zones[number % len(zones)],
            labels={GROUP_LABEL: name},
        )


def _gpu_nodes(settings: StackSettings, catalog: Catalog) -> Iterator[dict[str, Any]]:
    for group in settings.gpu_groups:
        seen = gpu_group_output(group, catalog=catalog, network_zones=settings.network.availability_zones)
        plan = launch_plan(group, catalog=catalog, network_zones=settings.network.availability_zones)
        devices = {"nvidia.com/gpu": str(seen.gpus_per_node)}
        if seen.efa_per_node:
            devices |= {"vpc.amazonaws.com/efa": str(seen.efa_per_node), "hugepages-2Mi": str(EFA_HUGE_PAGES_BYTES)}
        for number in range(group.max_size):
            yield _node(
                f"{group.name}-{number}",
                plan.instance,
                settings,
                zone=plan.availability_zones[number % len(plan.availability_zones)],
                labels={**seen.labels, "nvidia.com/gpu.present": "true"},
                taints=seen.taints,
                devices=devices,
            )


def _node(
    name: str,
    instance: InstanceType,
    settings: StackSettings,
    *,
    zone: str,
    labels: Mapping[str, str],
    taints: tuple[Taint, ...] = (),
    devices: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    devices = devices or {}
    max_pods = settings.network.pods_per_node
    memory = allocatable_memory_bytes(
        instance.memory_gib, max_pods=max_pods, huge_pages_bytes=int(devices.get("hugepages-2Mi", 0))
    )
    resources = {
        "cpu": f"{allocatable_cpu_millis(instance.vcpus)}m",
        "memory": str(memory),
        "pods": str(max_pods),
        "ephemeral-storage": str(_SYSTEM_DISK_BYTES),
        **devices,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {FAKE_NODE_ANNOTATION: "fake"},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": {"x86_64": "amd64", "arm64": "arm64"}[instance.architecture],
                "node.kubernetes.io/instance-type": instance.name,
                "topology.kubernetes.io/region": settings.aws.region,
                "topology.kubernetes.io/zone": zone,
                **labels,
            },
        },
        "spec": {"taints": [taint.model_dump() for taint in taints]},
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "conditions": [],
            "nodeInfo": {"kubeletVersion": "fake"},
        },
    }

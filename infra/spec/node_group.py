"""The node groups of an environment, resolved: everything that settings and catalogue say of a group, worked out once.

Whoever makes, describes or imitates nodes reads it here: the launch template, the autoscaler's tags, the stack outputs,
Kueue's quotas, the node gate and the sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from infra.spec import kubelet
from infra.spec.capacity import EFA_HUGE_PAGES_BYTES, LaunchPlan, launch_plan
from infra.spec.catalog import Catalog, InstanceType
from infra.spec.node_labels import (
    ACCELERATOR_LABEL,
    CAPACITY_LABEL,
    EFA_RESOURCE,
    GPU_MODEL_LABEL,
    GPU_RESOURCE,
    GPU_TAINT,
    GROUP_LABEL,
    HUGE_PAGES_RESOURCE,
    SPOT_TAINT,
    START_UP_TAINT,
    Taint,
)
from infra.spec.release import AmiType
from infra.spec.settings.nodes import GpuGroup, Sharing
from infra.spec.settings.stack import StackSettings
from infra.spec.sharing import devices_per_gpu, sharing_labels

_SYSTEM_UPDATE_PERCENT = 33

_USABLE_STORAGE = 0.85
"""Part of a disk that pods get: the kubelet keeps a tenth free (nodefs.available), the file system needs some too."""


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """One node group, resolved.

    Attributes:
        name: its name.
        plan: how it gets its machines, with the catalogue's entry of their type.
        min_size: smallest number of nodes.
        desired_size: number of nodes at creation; the autoscaler moves it.
        max_size: largest number of nodes.
        disk_gib: root volume in GiB.
        max_pods: largest number of pods on a node.
        labels: node labels that the stack outputs list; `node_labels` has them all.
        taints: node taints that stay.
        start_up_taints: node taints that go when the node is ready.
        sharing: how one GPU serves several pods.
        devices_per_gpu: `nvidia.com/gpu` that the device plugin makes of one GPU.
        update_percent: share of the nodes an update replaces at a time.
        is_repaired: EKS replaces or reboots broken nodes.
    """

    name: str
    plan: LaunchPlan
    min_size: int
    desired_size: int
    max_size: int
    disk_gib: int
    max_pods: int
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    start_up_taints: tuple[Taint, ...] = ()
    sharing: Sharing = Sharing()  # noqa: RUF009  # frozen
    devices_per_gpu: int = 1
    update_percent: int = _SYSTEM_UPDATE_PERCENT
    is_repaired: bool = True

    @property
    def instance(self) -> InstanceType:
        """The catalogue's entry of the nodes' type."""
        return self.plan.instance

    @property
    def gpu_devices(self) -> int:
        """`nvidia.com/gpu` of a node, GPUs counted as often as they are shared."""
        return self.instance.gpus * self.devices_per_gpu

    @property
    def node_labels(self) -> dict[str, str]:
        """All labels that EKS gives the nodes."""
        return {**self.labels, **sharing_labels(self.sharing)}

    @property
    def ami_type(self) -> AmiType:
        """EKS's AMI type of the nodes."""
        return "AL2023_x86_64_NVIDIA" if self.instance.gpus else "AL2023_x86_64_STANDARD"

    @property
    def expected_devices(self) -> dict[str, int]:
        """Devices by resource that a complete node has at least, sharing left aside."""
        devices = {GPU_RESOURCE: self.instance.gpus, EFA_RESOURCE: self.plan.efa_count}
        return {name: count for name, count in devices.items() if count}

    @property
    def huge_pages_bytes(self) -> int:
        """Memory that a node sets aside as huge pages."""
        return EFA_HUGE_PAGES_BYTES if self.plan.efa_count else 0

    @property
    def ephemeral_bytes(self) -> int:
        """Storage that pods of a node get: the instance store where it is joined, else the root volume."""
        nvme = self.instance.nvme
        capacity = nvme.disks * nvme.disk_gb * 10**9 if self.plan.nvme_raid0 and nvme else self.disk_gib * 2**30
        return int(capacity * _USABLE_STORAGE)

    @property
    def extended_resources(self) -> dict[str, int]:
        """What a node offers beside cores, memory and pods, GPUs counted as often as they are shared; no zeros."""
        resources = {
            **self.expected_devices,
            GPU_RESOURCE: self.gpu_devices,
            HUGE_PAGES_RESOURCE: self.huge_pages_bytes,
            "ephemeral-storage": self.ephemeral_bytes,
        }
        return {name: amount for name, amount in resources.items() if amount}

    @property
    def allocatable(self) -> dict[str, str]:
        """Quantities of everything that pods of a node may request."""
        memory = kubelet.allocatable_memory_bytes(
            self.instance.memory_gib, max_pods=self.max_pods, huge_pages_bytes=self.huge_pages_bytes
        )
        return {
            "cpu": f"{kubelet.allocatable_millicores(self.instance.vcpus)}m",
            "memory": str(memory),
            "pods": str(self.max_pods),
            **{name: str(amount) for name, amount in self.extended_resources.items()},
        }


class NodeGroups(NamedTuple):
    """The node groups of an environment: the system's, and those with GPUs."""

    system: NodeGroup
    gpu: tuple[NodeGroup, ...]

    def all(self) -> tuple[NodeGroup, ...]:
        """Every group, the system's first."""
        return (self.system, *self.gpu)


def resolve_node_groups(settings: StackSettings, *, catalog: Catalog) -> NodeGroups:
    """Work out every node group of an environment.

    Raises:
        SettingsError: a group's combination of capacity, placement and EFA is impossible.
    """
    return NodeGroups(
        _system_group(settings, catalog), tuple(_gpu_group(group, settings, catalog) for group in settings.gpu_groups)
    )


def _system_group(settings: StackSettings, catalog: Catalog) -> NodeGroup:
    nodes, request = settings.system_nodes, settings.launch_requests()[0]
    return NodeGroup(
        name=request.name,
        plan=launch_plan(request, catalog=catalog, network_zones=settings.network.availability_zones),
        min_size=nodes.min_size,
        desired_size=nodes.desired_size,
        max_size=nodes.max_size,
        disk_gib=nodes.disk_gib,
        max_pods=settings.network.pods_per_node,
        labels={GROUP_LABEL: request.name},
    )


def _gpu_group(group: GpuGroup, settings: StackSettings, catalog: Catalog) -> NodeGroup:
    plan = launch_plan(group, catalog=catalog, network_zones=settings.network.availability_zones)
    gpu = plan.instance.gpu
    assert gpu is not None, f"the settings admit only types with GPUs, and {group.instance_type} has none"
    model = gpu.model.lower()
    return NodeGroup(
        name=group.name,
        plan=plan,
        min_size=group.min_size,
        desired_size=group.desired_size,
        max_size=group.max_size,
        disk_gib=group.disk_gib,
        max_pods=settings.network.pods_per_node,
        labels={
            **group.labels,
            GROUP_LABEL: group.name,
            GPU_MODEL_LABEL: model,
            ACCELERATOR_LABEL: f"nvidia-{model}",
            CAPACITY_LABEL: group.capacity.kind,
        },
        taints=(GPU_TAINT, SPOT_TAINT) if plan.capacity_type == "SPOT" else (GPU_TAINT,),
        start_up_taints=(START_UP_TAINT,),
        sharing=group.sharing,
        devices_per_gpu=devices_per_gpu(group.sharing, gpu),
        update_percent=group.update_percent,
        is_repaired=group.repair,
    )

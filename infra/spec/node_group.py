"""The node groups of an environment, resolved once from settings and catalogue.

Launch templates, autoscaler tags, stack outputs, Kueue quotas, node gate and sandbox all derive from them.
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
"""Share of a disk available to pods: the kubelet keeps a tenth free (nodefs.available), the file system needs the rest."""


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """One node group, resolved.

    Attributes:
        name: name of the group.
        plan: launch plan, with the catalogue's instance type.
        min_size: minimum number of nodes.
        desired_size: number of nodes at creation; the autoscaler changes it.
        max_size: maximum number of nodes.
        disk_gib: root volume in GiB.
        max_pods: the kubelet's maxPods.
        labels: node labels in the stack outputs; `node_labels` has all labels.
        taints: permanent node taints.
        start_up_taints: node taints that are removed when the node is ready.
        sharing: how one GPU serves several pods.
        devices_per_gpu: number of `nvidia.com/gpu` that the device plugin advertises per GPU.
        update_percent: percentage of nodes that an update replaces at a time.
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
        """The nodes' instance type in the catalogue."""
        return self.plan.instance

    @property
    def gpu_devices(self) -> int:
        """Number of `nvidia.com/gpu` of a node, with sharing."""
        return self.instance.gpus * self.devices_per_gpu

    @property
    def node_labels(self) -> dict[str, str]:
        """All labels that EKS sets on the nodes."""
        return {**self.labels, **sharing_labels(self.sharing)}

    @property
    def ami_type(self) -> AmiType:
        """EKS AMI type of the nodes."""
        return "AL2023_x86_64_NVIDIA" if self.instance.gpus else "AL2023_x86_64_STANDARD"

    @property
    def expected_devices(self) -> dict[str, int]:
        """Devices that a ready node must have, by resource, without sharing."""
        devices = {GPU_RESOURCE: self.instance.gpus, EFA_RESOURCE: self.plan.efa_count}
        return {name: count for name, count in devices.items() if count}

    @property
    def huge_pages_bytes(self) -> int:
        """Memory that a node reserves as huge pages."""
        return EFA_HUGE_PAGES_BYTES if self.plan.efa_count else 0

    @property
    def ephemeral_bytes(self) -> int:
        """Ephemeral storage of a node: the instance store if it is a RAID 0, else the root volume."""
        nvme = self.instance.nvme
        capacity = nvme.disks * nvme.disk_gb * 10**9 if self.plan.nvme_raid0 and nvme else self.disk_gib * 2**30
        return int(capacity * _USABLE_STORAGE)

    @property
    def extended_resources(self) -> dict[str, int]:
        """Resources other than CPU, memory and pods, with GPU sharing; no zeros."""
        resources = {
            **self.expected_devices,
            GPU_RESOURCE: self.gpu_devices,
            HUGE_PAGES_RESOURCE: self.huge_pages_bytes,
            "ephemeral-storage": self.ephemeral_bytes,
        }
        return {name: amount for name, amount in resources.items() if amount}

    @property
    def allocatable(self) -> dict[str, str]:
        """The allocatable resources of a node, as Kubernetes quantities."""
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
    """The node groups of an environment: the system group and the GPU groups."""

    system: NodeGroup
    gpu: tuple[NodeGroup, ...]

    def all(self) -> tuple[NodeGroup, ...]:
        """Every group, the system group first."""
        return (self.system, *self.gpu)


def resolve_node_groups(settings: StackSettings, *, catalog: Catalog) -> NodeGroups:
    """Resolve every node group of an environment.

    Raises:
        SettingsError: a group's combination of capacity, placement and EFA is invalid.
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
    assert gpu is not None, f"{group.instance_type} has no GPUs, which the settings' rules exclude"
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

"""The node groups of an environment, resolved once from settings and catalogue.

Launch templates, autoscaler tags, stack outputs, Kueue quotas, node gate and sandbox all derive from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from infra.spec import kubelet
from infra.spec.capacity import LaunchRequest, split
from infra.spec.catalog import Catalog, InstanceType
from infra.spec.cluster_names import TMP_GIB
from infra.spec.launch_plan import LaunchPlan, launch_plan
from infra.spec.node_labels import (
    ACCELERATOR_LABEL,
    BALANCED_LABEL,
    CAPACITY_LABEL,
    EFA_RESOURCE,
    GPU_MODEL_LABEL,
    GPU_RESOURCE,
    GPU_TAINT,
    GROUP_LABEL,
    HEAD_TAINT,
    HUGE_PAGES_RESOURCE,
    SPOT_TAINT,
    START_UP_TAINT,
    Taint,
)
from infra.spec.release import AmiType
from infra.spec.settings.nodes import BASELINE_THROUGHPUT_MIB, GpuGroup, HeadNodes, Sharing, SystemNodes
from infra.spec.settings.stack import StackSettings
from infra.spec.sharing import devices_per_gpu, sharing_labels

_UPDATE_PERCENT = 33

_IMAGE_THROUGHPUT_MIB = 600
"""Throughput from which a root volume keeps up with images that are pulled in parallel (amazon-eks-ami, nodeadm, "Enabling fast
image pull"). The image of the trainer has several GB, which gp3's 125 MiB/s would keep waiting for a minute and more."""

_PARALLEL_PULL_VCPUS = 8
"""vCPUs from which nodeadm's documentation recommends it: 2xlarge."""

_KINDS = ("capacity_block", "reservation", "on_demand", "spot")

_USABLE_STORAGE = 0.85
"""Share of a disk available to pods: the kubelet keeps a tenth free (nodefs.available), the file system needs the rest."""

_IMAGES_GIB = 32
"""Part of a node's NVMe disks for images and logs: two releases of the trainer image, of several GB each, and the daemons' images."""


@dataclass(frozen=True, kw_only=True)
class ZoneGroup:
    """The part of a node group in one zone, which is one EKS managed node group.

    An Auto Scaling group of several zones ends instances in a full zone to balance them (AZRebalance), without regard to
    PodDisruptionBudgets (EKS user guide, "Managed node groups"), and the autoscaler cannot choose the zone of its nodes.

    Attributes:
        name: name of the managed node group; the group's own name if it has one zone.
        zone: availability zone.
        min_size: minimum number of nodes.
        desired_size: number of nodes at creation.
        max_size: maximum number of nodes.
    """

    name: str
    zone: str
    min_size: int
    desired_size: int
    max_size: int


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """One node group, resolved. `zone_groups` are its parts, with the same labels and taints.

    Attributes:
        name: name of the group.
        plan: launch plan, with the catalogue's instance type.
        min_size: minimum number of nodes.
        desired_size: number of nodes at creation; the autoscaler changes it.
        max_size: maximum number of nodes.
        disk_gib: root volume in GiB.
        disk_throughput_mib: throughput of the root volume in MiB/s.
        max_pods: the kubelet's maxPods.
        labels: node labels in the stack outputs; `node_labels` has all labels.
        taints: permanent node taints.
        start_up_taints: node taints that are removed when the node is ready.
        sharing: how one GPU serves several pods.
        devices_per_gpu: number of `nvidia.com/gpu` that the device plugin advertises per GPU.
        update_percent: percentage of nodes that an update replaces at a time.
        is_repaired: EKS replaces or reboots broken nodes.
        preference: smaller for a group that Kueue tries earlier.
        network_layers: layers of EC2's network by which Kueue places workers; 0: it does not.
        pulls_image_early: its nodes pull the trainer image before a job needs it.
    """

    name: str
    plan: LaunchPlan
    min_size: int
    desired_size: int
    max_size: int
    disk_gib: int
    disk_throughput_mib: int
    max_pods: int
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    start_up_taints: tuple[Taint, ...] = ()
    sharing: Sharing = Sharing()  # noqa: RUF009  # frozen
    devices_per_gpu: int = 1
    update_percent: int = _UPDATE_PERCENT
    is_repaired: bool = True
    preference: int = 0
    network_layers: int = 0
    pulls_image_early: bool = False

    @property
    def instance(self) -> InstanceType:
        """The nodes' instance type in the catalogue."""
        return self.plan.instance

    @property
    def zone_groups(self) -> tuple[ZoneGroup, ...]:
        """The managed node groups that the group consists of, one per zone.

        The sizes of a group without GPUs add up to the group's. Each zone of a GPU group may have the group's max_size,
        because the ranks of a job stay in one zone; the autoscaler bounds the sum (`gpu-total`).
        """
        zones = self.plan.availability_zones
        if len(zones) == 1:
            sizes = (self.min_size, self.desired_size, self.max_size)
            # A managed group with nodes of a Capacity Block cannot be updated, so each block has one of its own.
            suffix = f"-{self.plan.reservation_id[-8:]}" if self.plan.drain_before and self.plan.reservation_id else ""
            return (_zone_group(f"{self.name}{suffix}", zones[0], sizes),)
        largest = (self.max_size,) * len(zones) if self.instance.gpus else split(self.max_size, len(zones))
        parts = zip(split(self.min_size, len(zones)), split(self.desired_size, len(zones)), largest, strict=True)
        # EKS requires a max_size of 1 or more.
        return tuple(
            _zone_group(f"{self.name}-{zone}", zone, sizes)
            for zone, sizes in zip(zones, parts, strict=True)
            if sizes[2]
        )

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
    def pulls_in_parallel(self) -> bool:
        """Whether the layers of an image are downloaded and unpacked in parallel: the node and its disk are large enough."""
        is_fast = self.plan.nvme_raid0 or self.disk_throughput_mib >= _IMAGE_THROUGHPUT_MIB
        return is_fast and self.instance.vcpus >= _PARALLEL_PULL_VCPUS

    @property
    def expected_devices(self) -> dict[str, int]:
        """Devices that a ready node must have, by resource, without sharing."""
        devices = {GPU_RESOURCE: self.instance.gpus, EFA_RESOURCE: self.plan.efa_count}
        return {name: count for name, count in devices.items() if count}

    @property
    def ephemeral_bytes(self) -> int:
        """Ephemeral storage of a node: the instance store if it is a RAID 0, else the root volume."""
        disks = [one.nvme for one in (self.instance, *self.plan.alternatives) if one.nvme and self.plan.nvme_raid0]
        capacity = min((nvme.disks * nvme.disk_gb * 10**9 for nvme in disks), default=self.disk_gib * 2**30)
        return int(capacity * _USABLE_STORAGE)

    @property
    def cache_gib(self) -> int:
        """Room for the jobs' copies of datasets in GiB, beside images and the pods' /tmp; 0 without a RAID 0 of NVMe disks."""
        if not self.plan.nvme_raid0:
            return 0
        return max(0, self.ephemeral_bytes // 2**30 - _IMAGES_GIB - TMP_GIB * self.gpu_devices)

    @property
    def extended_resources(self) -> dict[str, int]:
        """Resources other than CPU, memory and pods, with GPU sharing; no zeros."""
        resources = {
            **self.expected_devices,
            GPU_RESOURCE: self.gpu_devices,
            HUGE_PAGES_RESOURCE: self.plan.huge_pages_bytes,
            "ephemeral-storage": self.ephemeral_bytes,
        }
        return {name: amount for name, amount in resources.items() if amount}

    @property
    def allocatable_millicores(self) -> int:
        """Allocatable CPU of a node in millicores."""
        return kubelet.allocatable_millicores(self.instance.vcpus)

    @property
    def allocatable_memory_bytes(self) -> int:
        """Allocatable memory of a node; nodeadm's reserve is for the maximum of pods of the instance type, not for `max_pods`."""
        return kubelet.allocatable_memory_bytes(
            self.instance.memory_gib,
            max_pods=kubelet.default_max_pods(self.instance.vcpus),
            huge_pages_bytes=self.plan.huge_pages_bytes,
        )

    @property
    def allocatable(self) -> dict[str, str]:
        """The allocatable resources of a node, as Kubernetes quantities."""
        return {
            "cpu": f"{self.allocatable_millicores}m",
            "memory": str(self.allocatable_memory_bytes),
            "pods": str(self.max_pods),
            **{name: str(amount) for name, amount in self.extended_resources.items()},
        }


def _zone_group(name: str, zone: str, sizes: tuple[int, int, int]) -> ZoneGroup:
    smallest, desired, largest = sizes
    return ZoneGroup(name=name, zone=zone, min_size=smallest, desired_size=desired, max_size=largest)


class NodeGroups(NamedTuple):
    """The node groups of an environment: the system group, the head group, and the GPU groups."""

    system: NodeGroup
    heads: NodeGroup
    gpu: tuple[NodeGroup, ...]

    def all(self) -> tuple[NodeGroup, ...]:
        """Every group, the system group first."""
        return (self.system, self.heads, *self.gpu)

    def by_preference(self) -> tuple[NodeGroup, ...]:
        """The GPU groups in the order in which Kueue tries them."""
        return tuple(sorted(self.gpu, key=lambda one: one.preference))


def resolve_node_groups(settings: StackSettings, *, catalog: Catalog) -> NodeGroups:
    """Resolve every node group of an environment.

    Raises:
        SettingsError: a group's combination of capacity, placement and EFA is invalid.
    """
    system, heads, *_ = settings.launch_requests()
    return NodeGroups(
        _cpu_group(system, settings.system_nodes, settings, catalog, taints=()),
        _cpu_group(heads, settings.head_nodes, settings, catalog, taints=(HEAD_TAINT,)),
        tuple(_gpu_group(group, settings, catalog) for group in settings.gpu_groups),
    )


def _preference(group: GpuGroup, settings: StackSettings) -> int:
    """The groups of `capacity_order`, then the others: what is paid for in any case, on demand, and what may be reclaimed."""
    order = settings.capacity_order
    return order.index(group.name) if group.name in order else len(order) + _KINDS.index(group.capacity.kind)


def _cpu_group(
    request: LaunchRequest,
    nodes: SystemNodes | HeadNodes,
    settings: StackSettings,
    catalog: Catalog,
    *,
    taints: tuple[Taint, ...],
) -> NodeGroup:
    plan = launch_plan(request, catalog=catalog, network_zones=settings.network.availability_zones)
    return NodeGroup(
        name=request.name,
        plan=plan,
        min_size=nodes.min_size,
        desired_size=nodes.desired_size,
        max_size=nodes.max_size,
        disk_gib=nodes.disk_gib,
        disk_throughput_mib=disk_throughput_mib(nodes, plan),
        max_pods=settings.network.pods_per_node,
        labels={GROUP_LABEL: request.name, BALANCED_LABEL: request.name},
        taints=taints,
    )


def disk_throughput_mib(nodes: SystemNodes | HeadNodes | GpuGroup, plan: LaunchPlan) -> int:
    """Throughput of a node's root volume in MiB/s: that of the settings, or one that suits the images on it."""
    if isinstance(nodes, SystemNodes):
        return BASELINE_THROUGHPUT_MIB
    default = BASELINE_THROUGHPUT_MIB if plan.nvme_raid0 else _IMAGE_THROUGHPUT_MIB
    return nodes.disk_throughput_mib or default


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
        disk_throughput_mib=disk_throughput_mib(group, plan),
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
        preference=_preference(group, settings),
        network_layers=catalog.family_of(group.instance_type).network_layers if group.topology == "network" else 0,
        pulls_image_early=group.prepull,
    )

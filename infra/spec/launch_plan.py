"""Launch plan of a node group: what launch template and managed node group get from its EC2 settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pydantic import AwareDatetime

from infra.spec.capacity import BLOCK_RECLAIM, CapacityBlock, CapacityType, LaunchRequest, Reservation, Spot, zones_of
from infra.spec.catalog import Catalog, InstanceType
from infra.spec.errors import SettingsError
from infra.spec.launch_rules import launch_violations


@dataclass(frozen=True, kw_only=True)
class NetworkInterface:
    """One network interface of a launch template."""

    network_card_index: int
    device_index: int
    interface_type: Literal["interface", "efa", "efa-only"]


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """The fields of launch template and node group that capacity, placement, EFA and catalogue determine.

    Attributes:
        instance: the catalogue's entry.
        alternatives: other types of a spot group, with the same GPUs and no less of anything else that pods may ask for.
        capacity_type: EKS's name of the kind of capacity.
        market_type: `InstanceMarketOptions.MarketType` of the launch template; None omits the options. EKS sets spot
            itself, from the capacity type.
        instance_type_in_template: the launch template, not the node group, sets the instance type; EKS requires it
            for Capacity Blocks (user guide, "Create a managed node group with Capacity Blocks for ML").
        reservation_id: target of the launch template's capacity reservation specification, or None.
        network_interfaces: explicit interfaces; empty for EC2's default of one ENA interface.
        placement_group: None, "own" (the stack creates one for this group), or the name of an existing one.
        availability_zones: zones of the group's subnets.
        nvme_raid0: nodeadm combines the instance store disks into one RAID 0.
        drain_before: time by which the nodes must be drained; None if the capacity does not end.
        update_strategy: EKS's order of an update; None for its default, which launches the new instances first. A
            reservation has no instance for that, and EKS retries until the update fails (EKS API, NodegroupUpdateConfig).
        huge_pages_bytes: memory that the AMI reserves as huge pages.
    """

    instance: InstanceType
    alternatives: tuple[InstanceType, ...]
    capacity_type: CapacityType
    market_type: Literal["capacity-block"] | None
    instance_type_in_template: bool
    reservation_id: str | None
    network_interfaces: tuple[NetworkInterface, ...]
    placement_group: str | None
    availability_zones: tuple[str, ...]
    nvme_raid0: bool
    drain_before: AwareDatetime | None
    update_strategy: Literal["MINIMAL"] | None
    huge_pages_bytes: int

    @property
    def efa_count(self) -> int:
        """EFA interfaces of a node: its quantity of `vpc.amazonaws.com/efa`."""
        return sum(interface.interface_type != "interface" for interface in self.network_interfaces)


def efa_interfaces(instance: InstanceType) -> tuple[NetworkInterface, ...]:
    """One EFA interface per network card that supports it, up to the type's maximum.

    The primary interface (card 0, device 0) carries IP, so it is `efa`, or `interface` if the card has no EFA; an
    EFA-only interface cannot be primary. The others are `efa-only` at device 1 of their card, so they take no subnet
    address and no route on the host.
    Source: EC2 user guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network cards".
    """
    has_efa = instance.efa_on_first_card
    primary = NetworkInterface(network_card_index=0, device_index=0, interface_type="efa" if has_efa else "interface")
    others = (
        NetworkInterface(network_card_index=card, device_index=1, interface_type="efa-only")
        for card in range(1, instance.efa_interfaces + (0 if has_efa else 1))
    )
    return (primary, *others)


def launch_plan(request: LaunchRequest, *, catalog: Catalog, network_zones: Iterable[str]) -> LaunchPlan:
    """The launch plan of one node group.

    Raises:
        SettingsError: the combination is invalid; names the group and every broken rule.
    """
    zones = tuple(network_zones)
    violations = list(launch_violations(request, catalog=catalog, network_zones=zones))
    if violations:
        raise SettingsError("".join(f"node group {request.name}: {violation}\n" for violation in violations).rstrip())
    instance, capacity = catalog.find_instance(request.instance_type), request.capacity
    is_block = isinstance(capacity, CapacityBlock)
    return LaunchPlan(
        instance=instance,
        alternatives=tuple(map(catalog.find_instance, request.instance_types[1:])),
        capacity_type="SPOT" if isinstance(capacity, Spot) else "CAPACITY_BLOCK" if is_block else "ON_DEMAND",
        market_type="capacity-block" if is_block else None,
        instance_type_in_template=is_block,
        reservation_id=capacity.id if isinstance(capacity, (Reservation, CapacityBlock)) else None,
        network_interfaces=efa_interfaces(instance) if request.efa else (),
        placement_group=_placement_group(request),
        availability_zones=zones_of(request, zones),
        nvme_raid0=request.local_nvme and instance.nvme is not None,
        drain_before=capacity.ends - BLOCK_RECLAIM if isinstance(capacity, CapacityBlock) else None,
        update_strategy="MINIMAL" if isinstance(capacity, (Reservation, CapacityBlock)) else None,
        huge_pages_bytes=instance.efa_huge_pages_mib * 2**20 if request.efa else 0,
    )


def _placement_group(request: LaunchRequest) -> str | None:
    if request.placement == "none":
        return None
    existing = request.capacity.placement_group if isinstance(request.capacity, Reservation) else None
    return existing or "own"

"""How a node group gets its instances: capacity, placement and EFA are independent choices, and the launch plan follows.

Capacity is a union, placement is not part of it: where an EFA switch also makes a placement group, as in other stacks,
launches into reservations fail with InsufficientInstanceCapacity (terraform-aws-eks PR #3730).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, PositiveInt

from infra.spec.catalog import Catalog, InstanceType
from infra.spec.errors import SettingsError
from infra.spec.section import Section, Violation

CapacityType = Literal["ON_DEMAND", "SPOT", "CAPACITY_BLOCK"]
ReservationId = Annotated[str, Field(pattern=r"^cr-[0-9a-f]{17}$")]
BLOCK_RECLAIM = timedelta(minutes=30)
"""EC2 starts to terminate the instances of a Capacity Block this long before it ends (EC2 user guide, "Capacity Blocks")."""

EFA_HUGE_PAGES_BYTES = 5128 * 2 * 2**20
"""Huge pages of 2 MiB that the accelerated AMI sets aside on a node with EFA (EKS user guide, "Run machine learning
training with Elastic Fabric Adapter")."""

AvailabilityZone = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")]


class OnDemand(Section):
    """Instances launched when they are needed, at the list price."""

    kind: Literal["on_demand"] = Field(description="on_demand | spot | reservation | capacity_block.")


class Spot(Section):
    """Spare instances that AWS reclaims with two minutes' notice."""

    kind: Literal["spot"] = Field(description="on_demand | spot | reservation | capacity_block.")
    allow_efa: bool = Field(
        False, description="Allow EFA although one interruption stops every rank of a job across nodes."
    )


class Reservation(Section):
    """A targeted on-demand capacity reservation: billed whether used or not."""

    kind: Literal["reservation"] = Field(description="on_demand | spot | reservation | capacity_block.")
    id: ReservationId = Field(description="Id of the reservation, cr-….")
    availability_zone: AvailabilityZone = Field(description="Zone of the reservation.")
    placement_group: str | None = Field(
        None, description="Name of the cluster placement group the reservation was created in; null has none."
    )


class CapacityBlock(Section):
    """A Capacity Block for ML: bought in advance for fixed days."""

    kind: Literal["capacity_block"] = Field(description="on_demand | spot | reservation | capacity_block.")
    id: ReservationId = Field(description="Id of the block, cr-….")
    availability_zone: AvailabilityZone = Field(description="Zone of the block.")
    ends: AwareDatetime = Field(
        description="When the block ends, with time zone; EC2 starts to terminate its instances 30 minutes before."
    )


Capacity = Annotated[OnDemand | Spot | Reservation | CapacityBlock, Field(discriminator="kind")]


class LaunchRequest(Section):
    """What one node group requests from EC2."""

    name: str = Field(
        pattern=r"^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$",
        description="Name of the group: lower case, at most 30 characters.",
    )
    instance_type: str = Field(description="A type of the instance catalogue.")
    capacity: Capacity = Field(
        OnDemand(kind="on_demand"),
        description="How the group gets its instances: on_demand, spot, reservation or capacity_block.",
    )
    placement: Literal["none", "cluster"] = Field(
        "none", description="cluster puts the nodes of the group close together, in a placement group of its own."
    )
    efa: bool = Field(False, description="Give every node all EFA interfaces of its type, for NCCL between nodes.")
    availability_zones: tuple[AvailabilityZone, ...] = Field(
        (), description="Zones of the group; empty takes all zones of the network, or the reservation's."
    )
    local_nvme: bool = Field(
        True, description="Join the instance's NVMe disks, where it has any, to one RAID 0 for images and scratch."
    )
    max_size: PositiveInt = Field(description="Largest number of nodes.")


@dataclass(frozen=True, kw_only=True)
class NetworkInterface:
    """One network interface of a launch template."""

    network_card_index: int
    device_index: int
    interface_type: Literal["interface", "efa", "efa-only"]


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """The fields of the launch template and the node group that follow from capacity, placement and catalogue.

    Attributes:
        instance: the catalogue's entry.
        capacity_type: EKS's name of the kind of capacity.
        market_type: `InstanceMarketOptions.MarketType` of the launch template; None leaves the options out. EKS itself
            sets spot, from the capacity type.
        instance_type_in_template: the instance type is in the launch template instead of the node group, which EKS
            requires for Capacity Blocks (user guide, "Create a managed node group with Capacity Blocks for ML").
        reservation_id: target of the launch template's reservation specification, or None.
        network_interfaces: explicit interfaces, empty where EC2's default (one ENA interface) is right.
        placement_group: None, "own" (the stack creates one for this group), or the name of an existing one.
        availability_zones: zones of the group's subnets.
        nvme_raid0: nodeadm joins the instance store disks to one RAID 0.
        drain_before: when the last workload must have ended; None where the capacity has no end.
    """

    instance: InstanceType
    capacity_type: CapacityType
    market_type: Literal["capacity-block"] | None
    instance_type_in_template: bool
    reservation_id: str | None
    network_interfaces: tuple[NetworkInterface, ...]
    placement_group: str | None
    availability_zones: tuple[str, ...]
    nvme_raid0: bool
    drain_before: AwareDatetime | None

    @property
    def efa_count(self) -> int:
        """EFA devices of a node, the quantity of `vpc.amazonaws.com/efa` it offers."""
        return sum(interface.interface_type != "interface" for interface in self.network_interfaces)


def efa_interfaces(instance: InstanceType) -> tuple[NetworkInterface, ...]:
    """One EFA interface per network card, as many as the type has.

    The primary interface (card 0, device 0) carries IP too, so it is `efa`; an EFA-only interface may not be primary.
    The others are `efa-only` at device 1 of their card: they take no address of the subnet and no route on the host.
    Source: EC2 user guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network cards".
    """
    primary = NetworkInterface(network_card_index=0, device_index=0, interface_type="efa")
    others = (
        NetworkInterface(network_card_index=card, device_index=1, interface_type="efa-only")
        for card in range(1, instance.efa_interfaces)
    )
    return (primary, *others)


def zones_of(request: LaunchRequest, network_zones: Iterable[str]) -> tuple[str, ...]:
    """Zones in which the group's nodes may start: its own, else the reservation's, else all of the network."""
    if request.availability_zones:
        return request.availability_zones
    if isinstance(request.capacity, (Reservation, CapacityBlock)):
        return (request.capacity.availability_zone,)
    return tuple(network_zones)


@dataclass(frozen=True)
class _Case:
    """A request with everything that its rules look at."""

    request: LaunchRequest
    instance: InstanceType
    catalog: Catalog
    zones: tuple[str, ...]


def _spot_refuses_efa(case: _Case) -> Violation | None:
    capacity = case.request.capacity
    if not case.request.efa or not isinstance(capacity, Spot) or capacity.allow_efa:
        return None
    return Violation(
        "efa",
        "true",
        "spot capacity does not take EFA: one interruption stops a job on all its nodes",
        "set efa: false, use other capacity, or force it with capacity.allow_efa: true",
    )


def _the_type_has_efa(case: _Case) -> Violation | None:
    if not case.request.efa or case.instance.efa_interfaces:
        return None
    able = [one.name for one in case.catalog.instances.values() if one.efa_interfaces]
    siblings = [name for name in able if name.startswith(f"{case.instance.family}.")]
    return Violation(
        "efa",
        "true",
        f"{case.instance.name} has no EFA interface",
        f"set efa: false, or use a type that has EFA: {', '.join(siblings or able)}",
    )


def _efa_stays_in_one_zone(case: _Case) -> Violation | None:
    if not case.request.efa or len(case.zones) == 1:
        return None
    return Violation(
        "availability_zones",
        ", ".join(case.zones),
        "EFA traffic does not cross zones, so efa: true needs exactly one",
        "name the zone that has the capacity",
    )


def _placement_stays_in_one_zone(case: _Case) -> Violation | None:
    if case.request.placement == "none" or len(case.zones) == 1:
        return None
    return Violation(
        "availability_zones",
        ", ".join(case.zones),
        "a cluster placement group is in exactly one zone",
        "name the zone that has the capacity, or set placement: none",
    )


def _reserved_capacity_lies_in_the_zone(case: _Case) -> Violation | None:
    capacity = case.request.capacity
    if not isinstance(capacity, (Reservation, CapacityBlock)) or case.zones == (capacity.availability_zone,):
        return None
    return Violation(
        "availability_zones",
        ", ".join(case.zones),
        f"{capacity.kind} {capacity.id} is in {capacity.availability_zone}, so the group must be too",
        f"set availability_zones: [{capacity.availability_zone}], or leave it out",
    )


def _a_block_is_already_close_together(case: _Case) -> Violation | None:
    if case.request.placement == "none" or not isinstance(case.request.capacity, CapacityBlock):
        return None
    return Violation(
        "placement",
        "cluster",
        "a Capacity Block is in one UltraCluster already; launching it into a placement group fails",
        "set placement: none",
    )


def _a_reservation_is_in_its_placement_group(case: _Case) -> Violation | None:
    capacity = case.request.capacity
    if not isinstance(capacity, Reservation):
        return None
    if case.request.placement == "cluster" and capacity.placement_group is None:
        return Violation(
            "placement",
            "cluster",
            "a reservation made outside a placement group cannot be launched into one",
            "set placement: none, or name the group of the reservation in capacity.placement_group",
        )
    if case.request.placement == "none" and capacity.placement_group is not None:
        return Violation(
            "placement",
            "none",
            f"the reservation was made in placement group {capacity.placement_group}; only launches into that group match it",
            "set placement: cluster",
        )
    return None


def _the_family_is_sold_in_blocks(case: _Case) -> Violation | None:
    is_sold = case.catalog.families[case.instance.family].capacity_blocks
    if is_sold or not isinstance(case.request.capacity, CapacityBlock):
        return None
    sold = sorted(name for name, family in case.catalog.families.items() if family.capacity_blocks)
    return Violation(
        "capacity.kind",
        "capacity_block",
        f"Capacity Blocks are not sold for {case.instance.name}",
        f"use a type of {', '.join(sold)}, or other capacity",
    )


_RULES: tuple[Callable[[_Case], Violation | None], ...] = (
    _spot_refuses_efa,
    _the_type_has_efa,
    _efa_stays_in_one_zone,
    _placement_stays_in_one_zone,
    _reserved_capacity_lies_in_the_zone,
    _a_block_is_already_close_together,
    _a_reservation_is_in_its_placement_group,
    _the_family_is_sold_in_blocks,
)


def launch_violations(request: LaunchRequest, *, catalog: Catalog, network_zones: Iterable[str]) -> Iterator[Violation]:
    """Every rule that the request breaks: EC2 would refuse it, or it could not work as intended. Keys are relative to the group.

    Raises:
        SettingsError: the instance type is not in the catalogue.
    """
    case = _Case(request, catalog.find_instance(request.instance_type), catalog, zones_of(request, network_zones))
    yield from (violation for rule in _RULES if (violation := rule(case)) is not None)


def launch_plan(request: LaunchRequest, *, catalog: Catalog, network_zones: Iterable[str]) -> LaunchPlan:
    """The launch plan of one node group.

    Raises:
        SettingsError: the combination is impossible; names the group and every rule it breaks.
    """
    zones = tuple(network_zones)
    violations = list(launch_violations(request, catalog=catalog, network_zones=zones))
    if violations:
        raise SettingsError("".join(f"node group {request.name}: {violation}\n" for violation in violations).rstrip())
    instance, capacity = catalog.find_instance(request.instance_type), request.capacity
    is_block = isinstance(capacity, CapacityBlock)
    return LaunchPlan(
        instance=instance,
        capacity_type="SPOT" if isinstance(capacity, Spot) else "CAPACITY_BLOCK" if is_block else "ON_DEMAND",
        market_type="capacity-block" if is_block else None,
        instance_type_in_template=is_block,
        reservation_id=capacity.id if isinstance(capacity, (Reservation, CapacityBlock)) else None,
        network_interfaces=efa_interfaces(instance) if request.efa else (),
        placement_group=_placement_group(request),
        availability_zones=zones_of(request, zones),
        nvme_raid0=request.local_nvme and instance.nvme is not None,
        drain_before=capacity.ends - BLOCK_RECLAIM if isinstance(capacity, CapacityBlock) else None,
    )


def _placement_group(request: LaunchRequest) -> str | None:
    if request.placement == "none":
        return None
    existing = request.capacity.placement_group if isinstance(request.capacity, Reservation) else None
    return existing or "own"


def vcpus_by_quota(requests: Iterable[LaunchRequest], *, catalog: Catalog) -> dict[str, int]:
    """The vCPUs of every group at its largest, by quota code of the ec2 service.

    Capacity Blocks are left out: they are bought, and count against no quota.
    """
    needed: dict[str, int] = {}
    for request in requests:
        if isinstance(request.capacity, CapacityBlock):
            continue
        codes = catalog.quotas[catalog.family_of(request.instance_type).quota]
        code = codes.spot if isinstance(request.capacity, Spot) else codes.on_demand
        needed[code] = needed.get(code, 0) + request.max_size * catalog.find_instance(request.instance_type).vcpus
    return needed

"""Launch plan of a node group, from three independent settings: capacity, placement and EFA.

EFA does not imply a placement group, as it does in other stacks: launches into reservations would fail with
InsufficientInstanceCapacity (terraform-aws-eks PR #3730).
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
"""Memory that the accelerated AMI reserves as 2 MiB huge pages on a node with EFA (EKS user guide, "Run machine learning
training with Elastic Fabric Adapter")."""

AvailabilityZone = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")]


class OnDemand(Section):
    """Instances launched on demand, at the list price."""

    kind: Literal["on_demand"] = Field(description="on_demand | spot | reservation | capacity_block.")


class Spot(Section):
    """Spare capacity that AWS reclaims with two minutes' notice."""

    kind: Literal["spot"] = Field(description="on_demand | spot | reservation | capacity_block.")
    allow_efa: bool = Field(
        False, description="Allow EFA, although one interruption stops every rank of a multi-node job."
    )


class Reservation(Section):
    """A targeted On-Demand Capacity Reservation, billed whether used or not."""

    kind: Literal["reservation"] = Field(description="on_demand | spot | reservation | capacity_block.")
    id: ReservationId = Field(description="Id of the reservation, cr-….")
    availability_zone: AvailabilityZone = Field(description="Zone of the reservation.")
    placement_group: str | None = Field(
        None, description="Cluster placement group that the reservation was created in; null: none."
    )


class CapacityBlock(Section):
    """A Capacity Block for ML, bought in advance for fixed dates."""

    kind: Literal["capacity_block"] = Field(description="on_demand | spot | reservation | capacity_block.")
    id: ReservationId = Field(description="Id of the block, cr-….")
    availability_zone: AvailabilityZone = Field(description="Zone of the block.")
    ends: AwareDatetime = Field(
        description="End time of the block, with time zone; EC2 starts to terminate its instances 30 minutes before."
    )


Capacity = Annotated[OnDemand | Spot | Reservation | CapacityBlock, Field(discriminator="kind")]


class LaunchRequest(Section):
    """The EC2 settings of one node group."""

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
        "none", description="cluster: launch the group's nodes into a cluster placement group of their own."
    )
    efa: bool = Field(False, description="Attach every EFA interface of the type to each node, for NCCL between nodes.")
    availability_zones: tuple[AvailabilityZone, ...] = Field(
        (), description="Zones of the group; empty: all zones of the network, or the reservation's zone."
    )
    local_nvme: bool = Field(
        True, description="Combine the instance's NVMe disks, if any, into one RAID 0 for images and scratch space."
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
    """The fields of launch template and node group that capacity, placement, EFA and catalogue determine.

    Attributes:
        instance: the catalogue's entry.
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
        """EFA interfaces of a node: its quantity of `vpc.amazonaws.com/efa`."""
        return sum(interface.interface_type != "interface" for interface in self.network_interfaces)


def efa_interfaces(instance: InstanceType) -> tuple[NetworkInterface, ...]:
    """One EFA interface per network card, up to the type's maximum.

    The primary interface (card 0, device 0) carries IP too, so it is `efa`; an EFA-only interface cannot be primary.
    The others are `efa-only` at device 1 of their card, so they take no subnet address and no route on the host.
    Source: EC2 user guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network cards".
    """
    primary = NetworkInterface(network_card_index=0, device_index=0, interface_type="efa")
    others = (
        NetworkInterface(network_card_index=card, device_index=1, interface_type="efa-only")
        for card in range(1, instance.efa_interfaces)
    )
    return (primary, *others)


def zones_of(request: LaunchRequest, network_zones: Iterable[str]) -> tuple[str, ...]:
    """Zones of the group's nodes: its own, else the reservation's, else all zones of the network."""
    if request.availability_zones:
        return request.availability_zones
    if isinstance(request.capacity, (Reservation, CapacityBlock)):
        return (request.capacity.availability_zone,)
    return tuple(network_zones)


@dataclass(frozen=True)
class _Case:
    """The input of the rules."""

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
        "spot capacity excludes EFA: one interruption stops a job on all its nodes",
        "set efa: false, use other capacity, or override with capacity.allow_efa: true",
    )


def _the_type_supports_efa(case: _Case) -> Violation | None:
    if not case.request.efa or case.instance.efa_interfaces:
        return None
    able = [one.name for one in case.catalog.instances.values() if one.efa_interfaces]
    siblings = [name for name in able if name.startswith(f"{case.instance.family}.")]
    return Violation(
        "efa",
        "true",
        f"{case.instance.name} does not support EFA",
        f"set efa: false, or use a type with EFA: {', '.join(siblings or able)}",
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
        "a cluster placement group needs exactly one zone",
        "name the zone that has the capacity, or set placement: none",
    )


def _reserved_capacity_is_in_the_zone(case: _Case) -> Violation | None:
    capacity = case.request.capacity
    if not isinstance(capacity, (Reservation, CapacityBlock)) or case.zones == (capacity.availability_zone,):
        return None
    return Violation(
        "availability_zones",
        ", ".join(case.zones),
        f"{capacity.kind} {capacity.id} is in {capacity.availability_zone}, so the group must be too",
        f"set availability_zones: [{capacity.availability_zone}], or omit it",
    )


def _a_block_has_no_placement_group(case: _Case) -> Violation | None:
    if case.request.placement == "none" or not isinstance(case.request.capacity, CapacityBlock):
        return None
    return Violation(
        "placement",
        "cluster",
        "a Capacity Block is in an UltraCluster already; launching it into a placement group fails",
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
            "instances of a reservation created outside a placement group cannot be launched into one",
            "set placement: none, or name the reservation's placement group in capacity.placement_group",
        )
    if case.request.placement == "none" and capacity.placement_group is not None:
        return Violation(
            "placement",
            "none",
            f"the reservation was created in placement group {capacity.placement_group}; only launches into it match",
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
    _the_type_supports_efa,
    _efa_stays_in_one_zone,
    _placement_stays_in_one_zone,
    _reserved_capacity_is_in_the_zone,
    _a_block_has_no_placement_group,
    _a_reservation_is_in_its_placement_group,
    _the_family_is_sold_in_blocks,
)


def launch_violations(request: LaunchRequest, *, catalog: Catalog, network_zones: Iterable[str]) -> Iterator[Violation]:
    """Every rule that the request breaks: EC2 would reject it, or it would not work as intended. Keys are relative to the group.

    Raises:
        SettingsError: the instance type is not in the catalogue.
    """
    case = _Case(request, catalog.find_instance(request.instance_type), catalog, zones_of(request, network_zones))
    yield from (violation for rule in _RULES if (violation := rule(case)) is not None)


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
    """The vCPUs of all groups at max_size, by quota code of the ec2 service.

    Capacity Blocks do not count: they are prepaid, outside the quotas.
    """
    needed: dict[str, int] = {}
    for request in requests:
        if isinstance(request.capacity, CapacityBlock):
            continue
        codes = catalog.quotas[catalog.family_of(request.instance_type).quota]
        code = codes.spot if isinstance(request.capacity, Spot) else codes.on_demand
        needed[code] = needed.get(code, 0) + request.max_size * catalog.find_instance(request.instance_type).vcpus
    return needed

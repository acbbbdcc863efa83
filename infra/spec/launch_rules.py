"""Rules of the EC2 settings of one node group: what EC2 would reject, or what would not work as intended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from infra.spec.capacity import CapacityBlock, LaunchRequest, Reservation, Spot, zones_of
from infra.spec.catalog import Catalog, InstanceType
from infra.spec.section import Violation, nearest


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


def _types_have_the_same_shape(case: _Case) -> Violation | None:
    """The first of a spot group's other types that a job would notice."""
    others = case.request.instance_types[1:]
    found: tuple[str, str] | None
    for index, name in enumerate(others):
        if case.request.efa:
            found = ("EFA interfaces are those of one instance type", "omit it, or set efa: false")
        elif name in (case.instance.name, *others[:index]):
            found = ("is the group's instance_type, or listed twice", "omit it")
        elif name not in case.catalog.instances:
            found = ("is not in the catalogue", nearest(name, case.catalog.instances))
        else:
            found = shape_difference(case.catalog.instances[name], case.instance)
        if found:
            return Violation("capacity.instance_types", name, *found)
    return None


def shape_difference(other: InstanceType, first: InstanceType) -> tuple[str, str] | None:
    """What a job would miss on a node of the other type, and the remedy."""
    if _gpus(other) != _gpus(first):
        return f"has {_gpus(other)}, {first.name} has {_gpus(first)}", "use types with the same GPUs"
    if other.vcpus < first.vcpus or other.memory_gib < first.memory_gib:
        has = f"has {other.vcpus} vCPUs and {other.memory_gib} GiB of memory"
        return f"{has}, {first.name} has {first.vcpus} and {first.memory_gib}", "make it the group's instance_type"
    if other.architecture != first.architecture or (other.nvme is None) != (first.nvme is None):
        return f"differs from {first.name} in architecture, or in whether it has NVMe disks", "omit it"
    return None


def _gpus(instance: InstanceType) -> str:
    gpu = instance.gpu
    return f"{gpu.count} x {gpu.model} with {gpu.memory_mib} MiB" if gpu else "no GPUs"


_RULES: tuple[Callable[[_Case], Violation | None], ...] = (
    _spot_refuses_efa,
    _the_type_supports_efa,
    _efa_stays_in_one_zone,
    _placement_stays_in_one_zone,
    _reserved_capacity_is_in_the_zone,
    _a_block_has_no_placement_group,
    _a_reservation_is_in_its_placement_group,
    _the_family_is_sold_in_blocks,
    _types_have_the_same_shape,
)


def launch_violations(request: LaunchRequest, *, catalog: Catalog, network_zones: Iterable[str]) -> Iterator[Violation]:
    """Every rule that the request breaks: EC2 would reject it, or it would not work as intended. Keys are relative to the group.

    Raises:
        SettingsError: the instance type is not in the catalogue.
    """
    case = _Case(request, catalog.find_instance(request.instance_type), catalog, zones_of(request, network_zones))
    yield from (violation for rule in _RULES if (violation := rule(case)) is not None)

"""The times in which the reservations and Capacity Blocks of an environment have nodes. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from infra.lifecycle.capacity.judging import COMING_STATES
from infra.lifecycle.capacity.need import utc
from infra.lifecycle.capacity.offers import Reserved
from infra.spec.capacity import BLOCK_RECLAIM, CapacityBlock, Reservation
from infra.spec.catalog import Catalog
from infra.spec.settings.nodes import GpuGroup
from infra.spec.sharing import devices_per_gpu

_TOLERANCE = timedelta(minutes=1)
"""By how much an end in the settings may differ from EC2's, which has seconds."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """The time in which a reservation or a Capacity Block has nodes.

    Attributes:
        id: its ID.
        kind: reservation or Capacity Block.
        group: group of the environment that uses it; empty if none does.
        instance_type: instance type.
        zone: availability zone.
        nodes: instances that it holds.
        gpus: their GPUs, as the queue counts them: each part of a shared one.
        state: EC2's name of its state, or `not found`.
        starts: start; None if it has none to come.
        ends: end; None if it lasts until it is cancelled.
        problems: what is wrong with it.
    """

    id: str
    kind: Literal["reservation", "capacity_block"]
    group: str
    instance_type: str
    zone: str
    nodes: int
    gpus: int
    state: str
    starts: datetime | None
    ends: datetime | None
    problems: tuple[str, ...] = ()

    @property
    def nodes_until(self) -> datetime | None:
        """Until when nodes are there: EKS empties the group of a block before the block ends."""
        return self.ends - BLOCK_RECLAIM if self.ends and self.kind == "capacity_block" else self.ends

    @property
    def has_capacity(self) -> bool:
        """Whether it has nodes, or gets them at its start."""
        return self.state == "active" or self.state in COMING_STATES


def windows_of(
    groups: Sequence[GpuGroup], reserved: Sequence[Reserved], *, region: str, catalog: Catalog
) -> tuple[Window, ...]:
    """The windows of an environment: what its groups use, and what the account has of their types besides, by start.

    Args:
        groups: its GPU groups.
        reserved: what the account has in the region.
        region: the region, for messages.
        catalog: the instance catalogue.
    """
    by_id = {one.id: one for one in reserved}
    used: dict[str, tuple[GpuGroup, Reservation | CapacityBlock]] = {
        group.capacity.id: (group, group.capacity)
        for group in groups
        if isinstance(group.capacity, (Reservation, CapacityBlock))
    }
    types = {group.instance_type for group in groups}
    spare = [one for one in reserved if one.instance_type in types and one.id not in used]
    found = [
        _window(by_id[id_], catalog, group=group, problems=tuple(_problems(group, capacity, by_id[id_])))
        if id_ in by_id
        else _not_found(group, capacity, region)
        for id_, (group, capacity) in used.items()
    ]
    found += [_window(one, catalog, group=None) for one in spare]
    return tuple(sorted(found, key=lambda one: (one.starts.timestamp() if one.starts else 0.0, one.id)))


def _not_found(group: GpuGroup, capacity: Reservation | CapacityBlock, region: str) -> Window:
    return Window(
        id=capacity.id,
        kind=capacity.kind,
        group=group.name,
        instance_type=group.instance_type,
        zone=capacity.availability_zone,
        nodes=0,
        gpus=0,
        state="not found",
        starts=None,
        ends=capacity.ends if isinstance(capacity, CapacityBlock) else None,
        problems=(f"{capacity.id} is not in this account in {region}: it has ended, or was never bought",),
    )


def _problems(group: GpuGroup, capacity: Reservation | CapacityBlock, found: Reserved) -> Iterable[str]:
    if found.instance_type != group.instance_type:
        yield f"{capacity.id} is for {found.instance_type}, {group.name} has {group.instance_type}"
    if found.zone != capacity.availability_zone:
        yield f"{capacity.id} is in {found.zone}, the settings of {group.name} say {capacity.availability_zone}"
    if found.total < group.max_size:
        yield f"{capacity.id} holds {found.total} instances, max_size of {group.name} is {group.max_size}"
    if isinstance(capacity, CapacityBlock) and found.ends and abs(found.ends - capacity.ends) > _TOLERANCE:
        yield f"{capacity.id} ends at {utc(found.ends)}, the settings of {group.name} say {utc(capacity.ends)}"


def _window(one: Reserved, catalog: Catalog, *, group: GpuGroup | None, problems: tuple[str, ...] = ()) -> Window:
    known = catalog.instances.get(one.instance_type)
    gpu = known.gpu if known else None
    each = 1 if group is None or gpu is None else devices_per_gpu(group.sharing, gpu)
    return Window(
        id=one.id,
        kind=one.kind,
        group="" if group is None else group.name,
        instance_type=one.instance_type,
        zone=one.zone,
        nodes=one.total,
        gpus=one.total * each * (gpu.count if gpu else 0),
        state=one.state,
        starts=one.starts,
        ends=one.ends,
        problems=problems,
    )

"""The EC2 settings of a node group: capacity, placement and EFA are independent of each other.

EFA does not imply a placement group, as it does in other stacks: launches into reservations would fail with
InsufficientInstanceCapacity (terraform-aws-eks PR #3730).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, PositiveInt

from infra.spec.catalog import Catalog
from infra.spec.matching import Matching
from infra.spec.section import Section

CapacityType = Literal["ON_DEMAND", "SPOT", "CAPACITY_BLOCK"]
ReservationId = Annotated[
    str, Matching(r"^cr-[0-9a-f]{17}$", "must be the ID of a capacity reservation: cr- and 17 hexadecimal digits")
]
BLOCK_RECLAIM = timedelta(minutes=40)
"""EKS scales the managed node group of a Capacity Block to zero this long before the block ends; EC2 ends what is left 10
minutes later (EKS user guide, "Create a managed node group with Capacity Blocks for ML")."""

AvailabilityZone = Annotated[
    str, Matching(r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$", "must be an availability zone, e.g. us-east-1a")
]


class OnDemand(Section):
    """Instances launched on demand, at the list price."""

    kind: Literal["on_demand"] = Field(description="on_demand | spot | reservation | capacity_block.")


class Spot(Section):
    """Spare capacity that AWS reclaims with two minutes' notice."""

    kind: Literal["spot"] = Field(description="on_demand | spot | reservation | capacity_block.")
    allow_efa: bool = Field(
        False, description="Allow EFA, although one interruption stops every rank of a multi-node job."
    )
    instance_types: tuple[str, ...] = Field(
        (),
        description="More types that the group may use: the same GPUs as instance_type, at least its vCPUs and memory. AWS "
        "interrupts a group less that has more types to choose from.",
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
        description="End time of the block, with time zone; EKS ends its nodes 40 minutes before."
    )


Capacity = Annotated[OnDemand | Spot | Reservation | CapacityBlock, Field(discriminator="kind")]


class LaunchRequest(Section):
    """The EC2 settings of one node group."""

    name: Annotated[
        str,
        Matching(
            r"^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$",
            "must be at most 30 lower-case letters, digits and inner hyphens, and begin with a letter",
        ),
    ] = Field(
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

    @property
    def instance_types(self) -> tuple[str, ...]:
        """Every type that the group may use; the first is the smallest."""
        more = self.capacity.instance_types if isinstance(self.capacity, Spot) else ()
        return (self.instance_type, *more)

    def largest_in_a_zone(self, zones: int) -> int:
        """Largest number of the group's nodes in one of its zones, over which they are divided evenly."""
        return split(self.max_size, zones)[0]


def split(count: int, parts: int) -> tuple[int, ...]:
    """`count` in `parts` that differ by one at most, the larger ones first."""
    each, rest = divmod(count, parts)
    return tuple(each + (index < rest) for index in range(parts))


def zones_of(request: LaunchRequest, network_zones: Iterable[str]) -> tuple[str, ...]:
    """Zones of the group's nodes: its own, else the reservation's, else all zones of the network."""
    if request.availability_zones:
        return request.availability_zones
    if isinstance(request.capacity, (Reservation, CapacityBlock)):
        return (request.capacity.availability_zone,)
    return tuple(network_zones)


def vcpus_by_quota(requests: Iterable[LaunchRequest], *, catalog: Catalog) -> dict[str, int]:
    """The vCPUs of all groups at max_size, by quota code of the ec2 service.

    Capacity Blocks do not count: they are prepaid, outside the quotas. Nor does spot of a family for which AWS lists no quota.
    """
    needed: dict[str, int] = {}
    for request in requests:
        if isinstance(request.capacity, CapacityBlock):
            continue
        codes = catalog.quotas[catalog.family_of(request.instance_type).quota]
        code = codes.spot if isinstance(request.capacity, Spot) else codes.on_demand
        if code is None:
            continue
        largest = max(catalog.find_instance(name).vcpus for name in request.instance_types)
        needed[code] = needed.get(code, 0) + request.max_size * largest
    return needed

"""The ways to get nodes, as AWS describes them: facts only. `judging` says what they mean for a need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal


@dataclass(frozen=True)
class NotKnown:
    """AWS gave no answer; `why` says what it needs."""

    why: str

    def __str__(self) -> str:
        return f"not known: {self.why}"


@dataclass(frozen=True, kw_only=True)
class Quota:
    """A vCPU quota of the account in a region.

    Attributes:
        code: its code in Service Quotas.
        name: its name there.
        limit: vCPUs.
        used: vCPUs of running instances; of the on-demand quota also of reserved capacity that is not in use.
    """

    code: str
    name: str
    limit: int
    used: int

    @property
    def left(self) -> int:
        """VCPUs that may still be started."""
        return max(0, self.limit - self.used)


@dataclass(frozen=True, kw_only=True)
class OnDemand:
    """Instances at the list price, if AWS has them at the moment of the launch.

    Attributes:
        region: AWS region.
        zones: zones that offer the instance type to this account.
        quota: the quota that they count against.
        usd_per_hour: list price of an instance; None if the price table has none.
    """

    region: str
    zones: tuple[str, ...]
    quota: Quota | NotKnown
    usd_per_hour: float | None
    kind: Literal["on_demand"] = "on_demand"


@dataclass(frozen=True, kw_only=True)
class SpotPrice:
    """Price of a spot instance in one zone, in US dollars per hour.

    Attributes:
        now: of the dearest of the group's types.
        lowest: in the last week.
        highest: in the last week.
    """

    now: float
    lowest: float
    highest: float


@dataclass(frozen=True, kw_only=True)
class Spot:
    """Spare instances in one zone.

    Attributes:
        region: AWS region.
        zone: availability zone.
        instance_types: types that were asked for together.
        score: EC2's placement score, 1 to 10.
        price: its price there.
        quota: the quota that they count against.
        on_demand_usd_per_hour: list price of an instance; None if the price table has none.
    """

    region: str
    zone: str
    instance_types: tuple[str, ...]
    score: int | NotKnown
    price: SpotPrice | NotKnown
    quota: Quota | NotKnown
    on_demand_usd_per_hour: float | None
    kind: Literal["spot"] = "spot"


@dataclass(frozen=True, kw_only=True)
class Reserved:
    """An On-Demand Capacity Reservation or a Capacity Block that the account has.

    Attributes:
        kind: which of the two.
        region: AWS region.
        id: its ID, cr-….
        zone: availability zone.
        instance_type: instance type.
        state: EC2's name of its state.
        total: instances that it holds.
        available: those that are free.
        starts: start; None if EC2 names none.
        ends: end; None if it lasts until it is cancelled.
        owner: account that owns it; empty for this account.
        is_open: every launch of the account that matches uses it, not only those that name it.
        placement_group: cluster placement group that it was created in; empty for none.
        misfit: why a node of the platform cannot be launched into it; empty if it can.
        usd_per_hour: list price of an instance; None if the price table has none.
    """

    kind: Literal["reservation", "capacity_block"]
    region: str
    id: str
    zone: str
    instance_type: str
    state: str
    total: int
    available: int
    starts: datetime | None
    ends: datetime | None
    owner: str
    is_open: bool
    placement_group: str
    misfit: str
    usd_per_hour: float | None


@dataclass(frozen=True, kw_only=True)
class BlockOffering:
    """A Capacity Block that AWS sells.

    Attributes:
        region: AWS region.
        id: ID of the offering, which the purchase names.
        zone: availability zone, of the first if there are several.
        blocks: number of blocks that are sold together, each with an ID and a zone of its own.
        instances: number of instances.
        starts: start.
        ends: end; EKS empties its nodes before, see `BLOCK_RECLAIM`.
        fee: price of the whole block, paid at the purchase.
        currency: currency of the fee.
    """

    region: str
    id: str
    zone: str
    blocks: int
    instances: int
    starts: datetime
    ends: datetime
    fee: float
    currency: str
    kind: Literal["block_offering"] = "block_offering"

    @property
    def duration(self) -> timedelta:
        """From start to end."""
        return self.ends - self.starts


@dataclass(frozen=True, kw_only=True)
class FutureReservation:
    """A capacity reservation that may be requested for a later day; EC2 then decides.

    Attributes:
        region: AWS region.
        zones: zones that offer the instance type to this account.
        starts: the earliest start.
        usd_per_hour: list price of an instance; None if the price table has none.
    """

    region: str
    zones: tuple[str, ...]
    starts: datetime
    usd_per_hour: float | None
    kind: Literal["future_reservation"] = "future_reservation"


Offer = OnDemand | Spot | Reserved | BlockOffering | FutureReservation

NAMES: Mapping[str, str] = {
    "on_demand": "on demand",
    "spot": "spot",
    "reservation": "reservation",
    "capacity_block": "Capacity Block",
    "block_offering": "block for sale",
    "future_reservation": "future reservation",
}
"""What people call each kind."""


@dataclass(frozen=True, kw_only=True)
class Absent:
    """A kind of capacity that has nothing to offer in a region, or of which that is not known.

    Attributes:
        kind: the kind.
        region: AWS region.
        why: the reason.
    """

    kind: Literal["on_demand", "spot", "reservation", "block_offering", "future_reservation"]
    region: str
    why: str

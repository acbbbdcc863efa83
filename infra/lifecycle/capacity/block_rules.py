"""How long and how large a Capacity Block may be, and who may reserve capacity for a later day: EC2's published rules.

Sources: EC2 API, `DescribeCapacityBlockOfferings` and `CreateCapacityReservation`; EC2 user guide, "Find and purchase Capacity
Blocks".
"""

from __future__ import annotations

from datetime import datetime, timedelta

from infra.lifecycle.capacity.need import Need, utc
from infra.spec.capacity import BLOCK_RECLAIM

_DAY, _WEEK = 24, 7 * 24

BLOCK_HOURS = (*range(_DAY, 14 * _DAY + 1, _DAY), *range(3 * _WEEK, 26 * _WEEK + 1, _WEEK))
"""Durations of a block that EC2 takes, in hours: each day up to 14 days, then each week up to 182 days."""

LARGEST_BLOCK = 64
"""Largest number of instances in one block."""

_BLOCK_AHEAD = timedelta(weeks=8)
"""How long before its start a block is sold at the earliest."""

_FUTURE_FAMILIES = tuple("cmritg")
"""First letters of the types that may be reserved for a later day; no P type is among them."""

_FUTURE_VCPUS = 32
_FUTURE_FIRST, _FUTURE_LAST = timedelta(days=5), timedelta(days=120)


def durations_for(hours: float) -> tuple[int, ...]:
    """The durations to ask for: the shortest that lasts as long, and the next where EKS would empty the first too early.

    A block for 24 hours has nodes for 23 hours and 20 minutes. Empty if no block lasts as long.
    """
    lasting = [one for one in BLOCK_HOURS if one >= hours]
    too_early = bool(lasting) and timedelta(hours=lasting[0]) - BLOCK_RECLAIM < timedelta(hours=hours)
    return tuple(lasting[: 1 + too_early])


def why_no_block(need: Need, *, now: datetime) -> str:
    """Why EC2 sells no Capacity Block for the need, by its rules; empty if it may."""
    if not need.family.capacity_blocks:
        return f"not sold for {need.instance.family}"
    if need.nodes > LARGEST_BLOCK:
        return f"a block has at most {LARGEST_BLOCK} instances, not {need.nodes}: ask for several with FOR={LARGEST_BLOCK} or less"
    if not durations_for(need.hours):
        return f"a block lasts at most {BLOCK_HOURS[-1]:,} hours (182 days), not {need.hours:,.0f}"
    if need.starts - now > _BLOCK_AHEAD:
        return f"EC2 sells blocks that begin within {_BLOCK_AHEAD.days // 7} weeks, by {utc(now + _BLOCK_AHEAD)}"
    return ""


def future_start(need: Need, *, now: datetime) -> datetime | str:
    """The earliest start of a reservation for a later day; or why EC2 takes no request for it."""
    family = need.instance.family
    if not family.startswith(_FUTURE_FAMILIES):
        return f"EC2 takes requests for C, M, R, I, T and G types only, not for {family}"
    if need.vcpus < _FUTURE_VCPUS:
        return f"EC2 takes requests for at least {_FUTURE_VCPUS} vCPUs, not {need.vcpus}"
    if need.starts - now > _FUTURE_LAST:
        return f"EC2 takes requests for at most {_FUTURE_LAST.days} days ahead"
    # A little later than the earliest, so that the request is still valid when it is sent.
    return max(need.starts, now + _FUTURE_FIRST + timedelta(hours=1))

"""What an offer means for a need: what it costs, how certain it is, and what it lacks. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from infra.lifecycle.capacity.need import Need, utc
from infra.lifecycle.capacity.offers import (
    BlockOffering,
    FutureReservation,
    NotKnown,
    Offer,
    OnDemand,
    Quota,
    Reserved,
    Spot,
)
from infra.spec.capacity import BLOCK_RECLAIM, zones_of

_LIKELY_SCORE, _POSSIBLE_SCORE = 7, 4
"""Placement scores from which a spot request is called likely and possible. EC2 defines the ends only: 10 is highly likely to
succeed, 1 is not."""

_FEW_TYPES = 3
"""Types below which the placement score is always low (EC2 API, `GetSpotPlacementScores`)."""

SOON = timedelta(hours=1)
"""How far ahead a need may begin for which today's answer counts."""

COMING_STATES = frozenset({"scheduled", "pending", "payment-pending"})
"""States of a reservation or block that becomes active at its start. `assessing` and `delayed` may never."""


class Certainty(StrEnum):
    """How sure it is that the nodes come, best first."""

    HELD = "held"
    SOLD = "sold"
    LIKELY = "likely"
    POSSIBLE = "possible"
    UNLIKELY = "unlikely"


class Cost(NamedTuple):
    """US dollars; None where no price is known.

    Attributes:
        usd: for the whole need.
        per_gpu_hour: per hour of a GPU.
    """

    usd: float | None
    per_gpu_hour: float | None


@dataclass(frozen=True, kw_only=True)
class Place:
    """The environment that would use the offer.

    Attributes:
        region: its AWS region.
        zones: zones of its network.
        groups: its groups by the ID of the reservation or block that they use.
        now: the time, with its zone.
    """

    region: str
    zones: tuple[str, ...]
    groups: dict[str, str]
    now: datetime


@dataclass(frozen=True, kw_only=True)
class Judged:
    """An offer and what it means.

    Attributes:
        offer: the offer.
        certainty: how sure it is.
        zones: where; for the environment's region, the zones that it can use.
        starts: from when.
        ends: until when there are nodes; None if nothing ends them.
        cost: what the need costs in addition to what is paid in any case.
        shortfalls: what the need lacks with this offer; empty if it is met.
        notes: what else to know.
    """

    offer: Offer
    certainty: Certainty
    zones: tuple[str, ...]
    starts: datetime
    ends: datetime | None
    cost: Cost
    shortfalls: tuple[str, ...]
    notes: tuple[str, ...]


def judge(offer: Offer, need: Need, place: Place) -> Judged:
    """What the offer means for the need of an environment."""
    match offer:
        case OnDemand():
            return _on_demand(offer, need, place)
        case Spot():
            return _spot(offer, need, place)
        case Reserved():
            return _reserved(offer, need, place)
        case BlockOffering():
            return _block_offering(offer, need, place)
        case FutureReservation():
            return _future(offer, need, place)


def _on_demand(offer: OnDemand, need: Need, place: Place) -> Judged:
    notes = ["AWS promises nothing: a launch succeeds or fails", *_asked_later(need, place)]
    notes += [f"quota {offer.quota}"] if isinstance(offer.quota, NotKnown) else []
    return Judged(
        offer=offer,
        certainty=Certainty.POSSIBLE,
        zones=_usable(offer.zones, offer.region, need, place),
        starts=need.starts,
        ends=None,
        shortfalls=(
            *_out_of_reach(offer.zones, offer.region, place),
            *_quota(offer.quota, need),
        ),
        notes=tuple(notes),
        cost=_at(offer.usd_per_hour, need),
    )


def _spot(offer: Spot, need: Need, place: Place) -> Judged:
    price = None if isinstance(offer.price, NotKnown) else offer.price
    return Judged(
        offer=offer,
        certainty=_by_score(offer.score),
        zones=(offer.zone,),
        starts=need.starts,
        ends=None,
        shortfalls=(
            *_out_of_reach((offer.zone,), offer.region, place),
            *_quota(offer.quota, need),
        ),
        notes=(*_spot_notes(offer, need), *_asked_later(need, place)),
        cost=_at(price.now if price else None, need),
    )


def _by_score(score: int | NotKnown) -> Certainty:
    """An unknown score says nothing, like on demand."""
    if isinstance(score, NotKnown) or _POSSIBLE_SCORE <= score < _LIKELY_SCORE:
        return Certainty.POSSIBLE
    return Certainty.LIKELY if score >= _LIKELY_SCORE else Certainty.UNLIKELY


def _spot_notes(offer: Spot, need: Need) -> Iterator[str]:
    yield (
        f"placement score {offer.score}"
        if isinstance(offer.score, NotKnown)
        else f"placement score {offer.score} of 10"
    )
    if len(offer.instance_types) < _FEW_TYPES and not isinstance(offer.score, NotKnown):
        yield f"EC2 gives low scores to fewer than {_FEW_TYPES} types"
    yield "AWS may take the nodes back with two minutes' notice" + (
        ", and one that goes stops every rank" if need.nodes > 1 else ""
    )
    if isinstance(offer.price, NotKnown):
        yield f"price {offer.price}"
    else:
        if offer.on_demand_usd_per_hour and offer.price.now < offer.on_demand_usd_per_hour:
            yield f"{1 - offer.price.now / offer.on_demand_usd_per_hour:.0%} below on demand"
        if offer.price.lowest != offer.price.highest:
            yield f"${offer.price.lowest:,.2f} to ${offer.price.highest:,.2f} per node hour in the last week"
    if isinstance(offer.quota, NotKnown):
        yield f"quota {offer.quota}"


def _reserved(offer: Reserved, need: Need, place: Place) -> Judged:
    is_block = offer.kind == "capacity_block"
    last = offer.ends - BLOCK_RECLAIM if is_block and offer.ends else offer.ends
    starts = max(need.starts, offer.starts or need.starts)
    return Judged(
        offer=offer,
        certainty=Certainty.HELD if offer.state in {"active", *COMING_STATES} else Certainty.UNLIKELY,
        zones=(offer.zone,),
        starts=starts,
        ends=last,
        shortfalls=(
            *_out_of_reach((offer.zone,), offer.region, place),
            *([offer.misfit] if offer.misfit else []),
            *_free(offer, need),
            *_too_short(starts, last, need),
        ),
        notes=tuple(_reserved_notes(offer, place)),
        # What is in a reservation of this account is billed whether it is used or not.
        cost=_at(offer.usd_per_hour, need) if offer.owner else Cost(0.0, 0.0),
    )


def _free(offer: Reserved, need: Need) -> Iterator[str]:
    """Before its start nothing of it is available, and all of it is still to come."""
    free = offer.total if offer.state != "active" else offer.available
    if free < need.nodes:
        yield f"{free} of its {offer.total} instances are free, not {need.nodes}"


def _reserved_notes(offer: Reserved, place: Place) -> Iterator[str]:
    if offer.state != "active":
        yield f"state {offer.state}"
    if offer.id in place.groups:
        yield f"group {place.groups[offer.id]} uses it"
    if offer.owner:
        yield f"shared by account {offer.owner}; its instances are billed to this one"
    else:
        yield "paid in advance" if offer.kind == "capacity_block" else "billed whether it is used or not"
    if offer.is_open:
        yield "open: any matching launch of the account takes it too"


def _block_offering(offer: BlockOffering, need: Need, place: Place) -> Judged:
    last = offer.ends - BLOCK_RECLAIM
    gpu_hours = offer.instances * need.instance.gpus * (offer.duration / timedelta(hours=1))
    is_usd = offer.currency == "USD"
    notes = [f"{offer.duration / timedelta(hours=1):,.1f} h, paid at the purchase, and cannot be cancelled"]
    notes += [] if is_usd else [f"{offer.fee:,.2f} {offer.currency}"]
    return Judged(
        offer=offer,
        certainty=Certainty.SOLD,
        zones=(offer.zone,),
        starts=offer.starts,
        ends=last,
        cost=Cost(offer.fee, offer.fee / gpu_hours) if is_usd and gpu_hours else Cost(None, None),
        shortfalls=(
            *_out_of_reach((offer.zone,), offer.region, place),
            *([f"it is {offer.blocks} blocks, a group uses one"] if offer.blocks > 1 else []),
            *_too_short(offer.starts, last, need),
        ),
        notes=tuple(notes),
    )


def _future(offer: FutureReservation, need: Need, place: Place) -> Judged:
    return Judged(
        offer=offer,
        certainty=Certainty.POSSIBLE,
        zones=_usable(offer.zones, offer.region, need, place),
        starts=offer.starts,
        ends=None,
        shortfalls=tuple(_out_of_reach(offer.zones, offer.region, place)),
        notes=("EC2 assesses the request", "billed from its start, used or not, and cannot be cancelled before"),
        cost=_at(offer.usd_per_hour, need),
    )


def _at(usd_per_hour: float | None, need: Need) -> Cost:
    """Costs at a price per node and hour."""
    if usd_per_hour is None:
        return Cost(None, None)
    return Cost(usd_per_hour * need.nodes * need.hours, usd_per_hour / need.instance.gpus)


def _quota(quota: Quota | NotKnown, need: Need) -> Iterator[str]:
    if not isinstance(quota, NotKnown) and quota.left < need.vcpus:
        enough = quota.used + need.vcpus
        yield (
            f"quota {quota.code} leaves {quota.left:,} of {quota.limit:,} vCPUs, {need.nodes} nodes need {need.vcpus:,}: "
            f"request {enough:,} or more in Service Quotas"
        )


def _usable(zones: Sequence[str], region: str, need: Need, place: Place) -> tuple[str, ...]:
    """The zones that the environment can use, those of the group first; all if it can use none."""
    ours = [zone for zone in zones if zone in place.zones] if region == place.region else []
    preferred = zones_of(need.group, place.zones)
    return tuple(sorted(ours, key=lambda zone: zone not in preferred)) or tuple(zones)


def _out_of_reach(zones: Sequence[str], region: str, place: Place) -> Iterator[str]:
    """Why the environment has no subnet where the offer is."""
    if region != place.region:
        yield f"needs an environment in {region}: this one is in {place.region}"
    elif not set(zones) & set(place.zones):
        yield f"{', '.join(zones)}: no zone of the network, which has {', '.join(place.zones)}"


def _too_short(starts: datetime, ends: datetime | None, need: Need) -> Iterator[str]:
    if ends is not None and ends - starts < need.duration:
        hours = max(timedelta(), ends - starts) / timedelta(hours=1)
        yield f"has nodes for {hours:,.1f} h, until {utc(ends)}, not {need.hours:g} h"


def _asked_later(need: Need, place: Place) -> Iterator[str]:
    if need.starts - place.now > SOON:
        yield f"as of today: AWS says nothing about {need.starts:%Y-%m-%d}"

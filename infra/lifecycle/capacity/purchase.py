"""The commands of the AWS CLI that buy or reserve what an offer describes. They are printed, never run."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta

from infra.lifecycle.capacity.judging import SOON, Judged
from infra.lifecycle.capacity.need import Need
from infra.lifecycle.capacity.offers import BlockOffering, FutureReservation, OnDemand

_PLATFORM = "Linux/UNIX"


def purchase_command(judged: Judged, need: Need, *, now: datetime) -> str:
    """The command that takes the offer; empty for spot and for what the account has already.

    For on demand it is a reservation from now on, unless the need is of a later day: the only way to learn whether AWS has the
    instances, and to keep them.
    """
    offer = judged.offer
    match offer:
        case BlockOffering():
            return _ec2(
                "purchase-capacity-block",
                offer.region,
                capacity_block_offering_id=offer.id,
                instance_platform=_PLATFORM,
            )
        case OnDemand() if judged.starts - now <= SOON:
            return _reservation(judged, need, end_date_type="limited", end_date=_time(judged.starts + need.duration))
        case FutureReservation():
            seconds = str(round(need.duration / timedelta(seconds=1)))
            return _reservation(
                judged,
                need,
                start_date=_time(judged.starts),
                commitment_duration=seconds,
                delivery_preference="incremental",
            )
        case _:
            return ""


def _reservation(judged: Judged, need: Need, **options: str) -> str:
    return _ec2(
        "create-capacity-reservation",
        judged.offer.region,
        instance_type=need.instance.name,
        instance_platform=_PLATFORM,
        availability_zone=judged.zones[0],
        instance_count=str(need.nodes),
        instance_match_criteria="targeted",
        **options,
    )


def _ec2(command: str, region: str, **options: str) -> str:
    words = ["aws", "ec2", command, "--region", region]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", value]
    return shlex.join(words)


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

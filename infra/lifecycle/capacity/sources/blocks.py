"""Capacity Blocks that AWS sells."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.capacity.block_rules import durations_for, why_no_block
from infra.lifecycle.capacity.need import Need
from infra.lifecycle.capacity.offers import Absent, BlockOffering, NotKnown
from infra.lifecycle.capacity.sources.asking import ask


def block_offerings(aws: Clients, region: str, need: Need, *, now: datetime) -> tuple[BlockOffering, ...] | Absent:
    """The blocks for sale in a region that begin at the need's start or later."""
    why = why_no_block(need, now=now)
    if why:
        return Absent(kind="block_offering", region=region, why=why)
    found: dict[str, BlockOffering] = {}
    for hours in durations_for(need.hours):
        answer = ask("ec2:DescribeCapacityBlockOfferings", partial(_read, aws, region, need, hours))
        if isinstance(answer, NotKnown):
            return Absent(kind="block_offering", region=region, why=str(answer))
        found |= {one["CapacityBlockOfferingId"]: _offering(one, region) for one in answer}
    if not found:
        return Absent(
            kind="block_offering", region=region, why=f"none for sale with {need.nodes} x {need.instance.name}"
        )
    return tuple(found.values())


def _read(aws: Clients, region: str, need: Need, hours: int) -> list[Mapping[str, Any]]:
    pages = (
        aws.of("ec2", region)
        .get_paginator("describe_capacity_block_offerings")
        .paginate(
            InstanceType=need.instance.name,
            InstanceCount=need.nodes,
            CapacityDurationHours=hours,
            StartDateRange=need.starts,
        )
    )
    return [one for page in pages for one in page["CapacityBlockOfferings"]]


def _offering(one: Mapping[str, Any], region: str) -> BlockOffering:
    segments = one.get("CapacityBlockOfferingSegments", ())
    return BlockOffering(
        region=region,
        id=one["CapacityBlockOfferingId"],
        zone=one.get("AvailabilityZone") or segments[0]["AvailabilityZone"],
        blocks=max(1, len(segments)),
        instances=one["InstanceCount"],
        starts=one["StartDate"],
        ends=one["EndDate"],
        fee=float(one["UpfrontFee"]),
        currency=one.get("CurrencyCode", "USD"),
    )

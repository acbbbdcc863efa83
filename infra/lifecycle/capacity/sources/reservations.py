"""The capacity reservations and Capacity Blocks that the account has, its own and those that others share with it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.capacity.offers import NotKnown, Reserved
from infra.lifecycle.capacity.sources.asking import ask
from infra.spec.catalog import Catalog

_ENDED = frozenset({"expired", "cancelled", "failed", "payment-failed", "unsupported", "cancelling"})
_PLATFORM = "Linux/UNIX"


def reservations(aws: Clients, region: str, catalog: Catalog) -> tuple[Reserved, ...] | NotKnown:
    """Every reservation and block of a region that has not ended, of any instance type."""
    found = ask("ec2:DescribeCapacityReservations", lambda: _read(aws, region))
    if isinstance(found, NotKnown):
        return found
    return tuple(_reserved(one, aws.account, region, catalog) for one in found if one["State"] not in _ENDED)


def _read(aws: Clients, region: str) -> list[Mapping[str, Any]]:
    pages = aws.of("ec2", region).get_paginator("describe_capacity_reservations").paginate()
    return [one for page in pages for one in page["CapacityReservations"]]


def _reserved(one: Mapping[str, Any], account: str, region: str, catalog: Catalog) -> Reserved:
    ends: datetime | None = one.get("EndDate")
    owner = str(one.get("OwnerId", account))
    known = catalog.instances.get(one["InstanceType"])
    return Reserved(
        kind="capacity_block" if one.get("ReservationType") == "capacity-block" else "reservation",
        region=region,
        id=one["CapacityReservationId"],
        zone=one["AvailabilityZone"],
        instance_type=one["InstanceType"],
        state=one["State"],
        total=one["TotalInstanceCount"],
        available=one["AvailableInstanceCount"],
        starts=one.get("StartDate"),
        ends=ends if one.get("EndDateType") != "unlimited" else None,
        owner="" if owner == account else owner,
        is_open=one.get("InstanceMatchCriteria") == "open",
        placement_group=str(one.get("PlacementGroupArn", "")).rpartition("/")[2],
        misfit=_misfit(one),
        usd_per_hour=known.usd_per_hour if known and region == catalog.prices.region else None,
    )


def _misfit(one: Mapping[str, Any]) -> str:
    """Why a node of the platform cannot be launched into it."""
    if one.get("InstancePlatform", _PLATFORM) != _PLATFORM:
        return f"it is for {one['InstancePlatform']}, nodes are {_PLATFORM}"
    if one.get("Tenancy", "default") != "default":
        return f"it is of {one['Tenancy']} tenancy, nodes are not"
    if one.get("OutpostArn"):
        return "it is on an Outpost, nodes are in the region"
    if one.get("Interruptible"):
        return "it is interruptible: its owner may take the instances back, and launches need a market type that nodes do not have"
    return ""

"""A need of the sample environment, offers, and AWS's answers about them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from infra.lifecycle.capacity.finder import place_of
from infra.lifecycle.capacity.judging import Place
from infra.lifecycle.capacity.need import Need, make_need
from infra.lifecycle.capacity.offers import BlockOffering, OnDemand, Quota, Reserved, Spot, SpotPrice
from infra.spec.catalog import load_catalog
from infra.spec.settings import StackSettings, from_mapping
from tests.infra.lifecycle.capacity.published import ACCOUNT, Answer, Tree
from tests.infra.spec.samples import changed, dev_sections

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
RESERVATION_ID = "cr-0123456789abcdef0"
BLOCK_ID = "cr-00000000000000abc"
OFFERING_ID = "cbr-0123456789abcdef0"


def sections(changes: Tree | None = None) -> Tree:
    """The dev sample: `h100` has at most two p5.48xlarge, all of the team's quota; with changes."""
    return changed(dev_sections(), changes or {})


def settings(changes: Tree | None = None) -> StackSettings:
    return from_mapping(sections(changes), file="sample")


def need(
    group: str | None = "h100",
    *,
    nodes: int = 2,
    hours: float = 24,
    starts: datetime = NOW,
    changes: Tree | None = None,
) -> Need:
    return make_need(settings(changes), load_catalog(), group=group, nodes=nodes, hours=hours, starts=starts)


def place(changes: Tree | None = None) -> Place:
    return place_of(settings(changes), now=NOW)


def quota(left: int = 10_000) -> Quota:
    """A quota of which some is left."""
    return Quota(code="L-417A185B", name="Running On-Demand P instances", limit=left + 192, used=192)


def on_demand(**fields: Any) -> OnDemand:  # noqa: ANN401 - of the dataclass
    """On demand in two zones, at 100 dollars per node hour."""
    zones = ("us-east-1a", "us-east-1b")
    return OnDemand(**{"region": "us-east-1", "zones": zones, "quota": quota(), "usd_per_hour": 100.0, **fields})


def spot(**fields: Any) -> Spot:  # noqa: ANN401 - of the dataclass
    """Spot in a zone, with a score of 5."""
    sample = {
        "region": "us-east-1",
        "zone": "us-east-1a",
        "instance_types": ("p5.48xlarge",),
        "score": 5,
        "price": SpotPrice(now=40.0, lowest=30.0, highest=60.0),
        "quota": quota(),
        "on_demand_usd_per_hour": 100.0,
    }
    return Spot(**{**sample, **fields})


def reserved(**fields: Any) -> Reserved:  # noqa: ANN401 - of the dataclass
    """A targeted reservation of four p5.48xlarge, of which three are free."""
    sample = {
        "kind": "reservation",
        "region": "us-east-1",
        "id": RESERVATION_ID,
        "zone": "us-east-1a",
        "instance_type": "p5.48xlarge",
        "state": "active",
        "total": 4,
        "available": 3,
        "starts": NOW - 24 * HOUR,
        "ends": None,
        "owner": "",
        "is_open": False,
        "placement_group": "",
        "misfit": "",
        "usd_per_hour": 100.0,
    }
    return Reserved(**{**sample, **fields})


def block(**fields: Any) -> Reserved:  # noqa: ANN401 - of the dataclass
    """A Capacity Block of two nodes that begins tomorrow and lasts two days."""
    starts = NOW + 24 * HOUR
    sample = {"kind": "capacity_block", "id": BLOCK_ID, "state": "scheduled", "total": 2, "available": 0}
    return reserved(**{**sample, "starts": starts, "ends": starts + 48 * HOUR, **fields})


def offering(**fields: Any) -> BlockOffering:  # noqa: ANN401 - of the dataclass
    """A block of two nodes for sale, from tomorrow on for two days, for 3,072 dollars."""
    starts = NOW + 24 * HOUR
    sample = {
        "region": "us-east-1",
        "id": OFFERING_ID,
        "zone": "us-east-1a",
        "blocks": 1,
        "instances": 2,
        "starts": starts,
        "ends": starts + 48 * HOUR,
        "fee": 3072.0,
        "currency": "USD",
    }
    return BlockOffering(**{**sample, **fields})


def described(**fields: Any) -> Tree:  # noqa: ANN401 - of the API
    return {
        "CapacityReservationId": RESERVATION_ID,
        "OwnerId": ACCOUNT,
        "InstanceType": "p5.48xlarge",
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": "us-east-1b",
        "Tenancy": "default",
        "TotalInstanceCount": 8,
        "AvailableInstanceCount": 8,
        "State": "active",
        "StartDate": NOW - 24 * HOUR,
        "EndDateType": "unlimited",
        "InstanceMatchCriteria": "targeted",
        "ReservationType": "default",
        **fields,
    }


def sold(**fields: Any) -> Tree:  # noqa: ANN401 - of the API
    """A block for sale as EC2 describes it."""
    starts = datetime(2030, 1, 2, 11, 30, tzinfo=UTC)
    return {
        "CapacityBlockOfferingId": OFFERING_ID,
        "InstanceType": "p5.48xlarge",
        "AvailabilityZone": "us-east-1b",
        "InstanceCount": 8,
        "StartDate": starts,
        "EndDate": starts + 48 * HOUR,
        "CapacityBlockDurationHours": 48,
        "UpfrontFee": "12288.00",
        "CurrencyCode": "USD",
        "Tenancy": "default",
        **fields,
    }


def answers(**changes: Answer) -> dict[str, Answer]:
    """AWS with quotas for everything, a placement score of 9 in us-east-1b, no reservation, and a block for sale."""
    return {
        "GetCallerIdentity": {"Account": ACCOUNT, "Arn": f"arn:aws:sts::{ACCOUNT}:assumed-role/platform-admin/alice"},
        "GetServiceQuota": {"Quota": {"QuotaName": "Running On-Demand P instances", "Value": 10_000.0}},
        "DescribeCapacityReservations": {"CapacityReservations": []},
        "DescribeCapacityBlockOfferings": {"CapacityBlockOfferings": [sold()]},
        "GetSpotPlacementScores": {
            "SpotPlacementScores": [{"Region": "us-east-1", "AvailabilityZoneId": "use1-az1", "Score": 9}]
        },
        **changes,
    }

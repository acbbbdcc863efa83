"""On-demand instances: where they are offered, and what the quota leaves. AWS does not say whether it has any."""

from __future__ import annotations

from collections.abc import Iterable

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.account.instance_supply import offered_zones
from infra.lifecycle.capacity.need import Need
from infra.lifecycle.capacity.offers import Absent, NotKnown, OnDemand, Reserved
from infra.lifecycle.capacity.sources.asking import ask
from infra.lifecycle.capacity.sources.quotas import quota_of
from infra.spec.catalog import Catalog


def zones_that_offer(aws: Clients, region: str, need: Need) -> tuple[str, ...] | NotKnown:
    """Zones of the region that offer the need's instance type to this account, sorted."""
    name = need.instance.name
    found = ask("ec2:DescribeInstanceTypeOfferings", lambda: offered_zones(aws.of("ec2", region), {name}))
    return found if isinstance(found, NotKnown) else tuple(sorted(found.get(name, ())))


def on_demand(
    aws: Clients,
    region: str,
    need: Need,
    catalog: Catalog,
    *,
    zones: tuple[str, ...] | NotKnown,
    reserved: Iterable[Reserved],
) -> OnDemand | Absent:
    """The on-demand offer of a region.

    Args:
        aws: the account.
        region: AWS region.
        need: the need.
        catalog: the instance catalogue, with prices.
        zones: what `zones_that_offer` found.
        reserved: what the account has reserved in the region.
    """
    if isinstance(zones, NotKnown):
        return Absent(kind="on_demand", region=region, why=str(zones))
    if not zones:
        return Absent(kind="on_demand", region=region, why=f"no zone offers {need.instance.name} to this account")
    return OnDemand(
        region=region,
        zones=zones,
        quota=quota_of(aws, region, need, catalog, market="on_demand", reserved=reserved),
        usd_per_hour=list_price(need, region, catalog),
    )


def list_price(need: Need, region: str, catalog: Catalog) -> float | None:
    """On-demand price of an instance per hour; None in a region that the price table does not cover."""
    return need.instance.usd_per_hour if region == catalog.prices.region else None

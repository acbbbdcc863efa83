"""Bring the catalogue's price table up to date from the AWS Price List API.

A price is written only if exactly one list price matches its query; otherwise it keeps its value and date, and is
reported. Instance prices share one date, so they are written together or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from infra.lifecycle.account.aws import Client
from infra.spec.catalog import Catalog, load_catalog, with_names
from infra.spec.section import validate
from infra.spec.yaml_text import KeyPath, Scalar, edited, parse

SOURCE = "AWS Price List API"

API_REGION = "us-east-1"
"""A region with an endpoint of the Price List API, which covers all regions (Billing user guide, "Price List Query API")."""


@dataclass(frozen=True)
class Query:
    """A query of the Price List API.

    Attributes:
        service: its ServiceCode.
        filters: values of the product's attributes.
        usage: the product's usage type without the region's prefix.
    """

    service: str
    filters: Mapping[str, str]
    usage: str = ""


SERVICES: Mapping[str, Query] = {
    "eks_cluster_hour": Query("AmazonEKS", {}, "AmazonEKS-Hours:perCluster"),
    "eks_extended_support_hour": Query("AmazonEKS", {}, "AmazonEKS-Hours:extendedSupport"),
    "nat_gateway_hour": Query("AmazonEC2", {"productFamily": "NAT Gateway"}, "NatGateway-Hours"),
    "interface_endpoint_az_hour": Query("AmazonVPC", {"productFamily": "VpcEndpoint"}, "VpcEndpoint-Hours"),
    "public_ipv4_hour": Query("AmazonVPC", {}, "PublicIPv4:InUseAddress"),
    "gp3_gib_month": Query("AmazonEC2", {"volumeApiName": "gp3", "productFamily": "Storage"}, "EBS:VolumeUsage.gp3"),
    "gp3_throughput_gibps_month": Query(
        "AmazonEC2", {"productFamily": "Provisioned Throughput"}, "EBS:VolumeP-Throughput.gp3"
    ),
    "log_ingestion_gb": Query("AmazonCloudWatch", {"productFamily": "Data Payload"}, "DataProcessing-Bytes"),
    "rds_gp3_gib_month": Query(
        "AmazonRDS", {"databaseEngine": "PostgreSQL", "deploymentOption": "Single-AZ"}, "RDS:GP3-Storage"
    ),
}
"""The query for each price of a service, by its name in the catalogue."""


class Quote(NamedTuple):
    """A price that was found."""

    name: str
    usd: float


class Missing(NamedTuple):
    """A price that was not found, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class PriceList:
    """The results, by section of the price table."""

    instances: tuple[Quote | Missing, ...]
    services: tuple[Quote | Missing, ...]
    databases: tuple[Quote | Missing, ...]

    @property
    def missing(self) -> tuple[Missing, ...]:
        """Every price that was not found."""
        return tuple(one for one in (*self.instances, *self.services, *self.databases) if isinstance(one, Missing))


def instance_query(name: str) -> Query:
    """Query for an instance's Linux on-demand price: shared tenancy, no preinstalled software, no reservation."""
    attributes = {
        "instanceType": name,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }
    return Query("AmazonEC2", attributes)


def database_query(instance_class: str) -> Query:
    """Query for a database instance's Single-AZ on-demand price."""
    attributes = {"instanceType": instance_class, "databaseEngine": "PostgreSQL", "deploymentOption": "Single-AZ"}
    return Query("AmazonRDS", {**attributes, "productFamily": "Database Instance"})


def look_up(catalog: Catalog, client: Client) -> PriceList:
    """Query every price of the price table, in its region; instance types that the region does not sell have none.

    Args:
        catalog: the catalogue.
        client: a boto3 `pricing` client in `API_REGION`.
    """
    region = catalog.prices.region

    def ask(name: str, query: Query) -> Quote | Missing:
        prices = sorted(set(_list_prices(client, query, region)))
        if len(prices) != 1:
            found = ", ".join(f"{price:g}" for price in prices) or "none"
            return Missing(name, f"expected one price of {query.service} in {region}, found {found}")
        return Quote(name, prices[0])

    return PriceList(
        tuple(
            ask(name, instance_query(name)) for name in catalog.instances if region in catalog.family_of(name).regions
        ),
        tuple(ask(name, query) for name, query in SERVICES.items()),
        tuple(ask(name, database_query(name)) for name in catalog.prices.databases),
    )


def write(prices: PriceList, file: Path, *, today: date) -> None:
    """Write the prices into the catalogue, and validate it.

    Raises:
        SettingsError: the file would become an invalid catalogue; it stays unchanged.
    """
    changes: dict[KeyPath, Scalar] = {}
    found = [quote for quote in prices.instances if isinstance(quote, Quote)]
    if found and len(found) == len(prices.instances):
        changes |= {("instances", quote.name, "usd_per_hour"): quote.usd for quote in found}
        changes["prices", "instances", "as_of"] = today
        changes["prices", "instances", "source"] = f"{SOURCE}, Linux on-demand"
    for section, quotes in (("services", prices.services), ("databases", prices.databases)):
        for quote in quotes:
            if isinstance(quote, Quote):
                entry = ("prices", section, quote.name)
                changes[*entry, "usd"] = quote.usd
                changes[*entry, "as_of"] = today
                changes[*entry, "source"] = SOURCE
    changed = edited(file.read_text(encoding="utf-8"), changes)
    title = f"{file.name} with new prices"
    validate(Catalog, with_names(parse(changed, source=title).value), file=title)
    file.write_text(changed, encoding="utf-8")
    load_catalog.cache_clear()


def _list_prices(client: Client, query: Query, region: str) -> Iterator[float]:
    """US dollars per unit of every matching on-demand price; of tiered prices, the first tier."""
    filters = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value}
        for field, value in {**query.filters, "regionCode": region}.items()
    ]
    for page in client.get_paginator("get_products").paginate(ServiceCode=query.service, Filters=filters):
        for product in map(json.loads, page["PriceList"]):
            if _is_of_usage(product["product"]["attributes"]["usagetype"], query.usage):
                yield from _first_tiers(product)


def _is_of_usage(usage_type: str, usage: str) -> bool:
    """Whether a usage type matches: USE1-NatGateway-Hours is NatGateway-Hours in us-east-1."""
    return not usage or usage_type == usage or usage_type.endswith(f"-{usage}")


def _first_tiers(product: Mapping[str, Any]) -> Iterator[float]:
    for term in product["terms"].get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            if float(dimension["beginRange"]) == 0:
                yield float(dimension["pricePerUnit"]["USD"])

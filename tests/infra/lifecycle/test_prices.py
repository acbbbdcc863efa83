"""Prices from the Price List API, stubbed by botocore because moto lacks it."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from infra.lifecycle.account.aws import Client
from infra.lifecycle.prices import SERVICES, Missing, PriceList, Quote, database_query, instance_query, look_up, write
from infra.spec.catalog import CATALOG_FILE, Catalog, load_catalog

TODAY = date(2030, 1, 2)


def product(usd: float, *, usage: str = "X", begin: str = "0", more: tuple[float, ...] = ()) -> str:
    tiers = {"a": {"beginRange": begin, "pricePerUnit": {"USD": str(usd)}}}
    tiers |= {str(index): {"beginRange": "100", "pricePerUnit": {"USD": str(one)}} for index, one in enumerate(more)}
    return json.dumps(
        {"product": {"attributes": {"usagetype": usage}}, "terms": {"OnDemand": {"t": {"priceDimensions": tiers}}}}
    )


def client_answering(*answers: list[str], asked: list[dict[str, Any]] | None = None) -> Client:
    """A pricing client that returns these answers in order, for any request, which it notes."""
    client = boto3.client("pricing", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    noted = [] if asked is None else asked
    client.meta.events.register("before-parameter-build.pricing.GetProducts", lambda params, **_: noted.append(params))
    stub = Stubber(client)
    for answer in answers:
        stub.add_response("get_products", {"PriceList": answer}, {"ServiceCode": ANY, "Filters": ANY})
    stub.activate()
    return client


def small_catalog() -> Catalog:
    """The shipped catalogue with one instance type and one database class."""
    catalog = load_catalog()
    prices = catalog.prices.model_copy(update={"databases": {"db.m7g.large": catalog.prices.databases["db.m7g.large"]}})
    return catalog.model_copy(update={"instances": {"g6.xlarge": catalog.find_instance("g6.xlarge")}, "prices": prices})


SERVICE_ANSWERS = [[product(0.5, usage=f"USE1-{query.usage}")] for query in SERVICES.values()]


def test_a_single_match_or_equal_prices_are_the_price() -> None:
    found = look_up(small_catalog(), client_answering([product(0.8)], *SERVICE_ANSWERS, [product(0.17)]))
    assert found.instances == (Quote("g6.xlarge", 0.8),)
    assert found.services[0] == Quote("eks_cluster_hour", 0.5)
    assert found.databases == (Quote("db.m7g.large", 0.17),)
    assert found.missing == ()
    answer = [product(1, more=(0.5,)), product(1)]
    found = look_up(small_catalog(), client_answering(answer, *SERVICE_ANSWERS, [product(1)]))
    assert found.instances == (Quote("g6.xlarge", 1),)


def test_a_type_that_is_not_sold_in_the_price_region_is_not_looked_up() -> None:
    elsewhere = load_catalog().find_instance("p5e.48xlarge")
    catalog = small_catalog().model_copy(update={"instances": {elsewhere.name: elsewhere}})
    found = look_up(catalog, client_answering(*SERVICE_ANSWERS, [product(1)]))
    assert (found.instances, found.missing) == ((), ())


def test_no_match_and_several_matches_are_unresolved() -> None:
    answers: tuple[tuple[list[str], str], ...] = (
        ([], "found none"),
        ([product(1), product(2)], "found 1, 2"),
        ([product(1, begin="9")], "none"),
    )
    for answer, reason in answers:
        found = look_up(small_catalog(), client_answering(answer, *SERVICE_ANSWERS, [product(1)]))
        (missing,) = found.missing
        assert missing.name == "g6.xlarge"
        assert reason in missing.reason


def test_only_the_regions_prefix_is_allowed_in_a_usage_type() -> None:
    for prefix, is_found in (("", True), ("USW2-", True), ("USE1-Outposts", False)):
        services = [[product(0.1, usage=f"{prefix}AmazonEKS-Hours:perCluster")], *SERVICE_ANSWERS[1:]]
        found = look_up(small_catalog(), client_answering([product(1)], *services, [product(1)]))
        assert isinstance(found.services[0], Quote) is is_found, prefix


def test_queries_name_the_region_and_the_product() -> None:
    asked: list[dict[str, Any]] = []
    look_up(small_catalog(), client_answering([product(1)], *SERVICE_ANSWERS, [product(1)], asked=asked))
    fields = {one["Field"]: one["Value"] for one in asked[0]["Filters"]}
    assert fields == {**instance_query("g6.xlarge").filters, "regionCode": "us-east-1"}
    assert {one["Field"] for one in asked[-1]["Filters"]} == {*database_query("x").filters, "regionCode"}
    assert set(SERVICES) == set(type(load_catalog().prices.services).model_fields), "every service has a query"


@pytest.fixture
def catalog_file(tmp_path: Path) -> Path:
    copy = tmp_path / "catalog.yaml"
    shutil.copy(CATALOG_FILE, copy)
    return copy


def test_prices_are_written_with_date_and_source(catalog_file: Path) -> None:
    instances = tuple(Quote(name, 1.25) for name in load_catalog().instances)
    services, databases = (Quote("nat_gateway_hour", 0.05),), (Quote("db.m7g.large", 0.168),)
    write(PriceList(instances, services, databases), catalog_file, today=TODAY)
    written = load_catalog(catalog_file)
    assert {one.usd_per_hour for one in written.instances.values()} == {1.25}
    nat, database = written.prices.services.nat_gateway_hour, written.prices.databases["db.m7g.large"]
    assert (nat.usd, nat.as_of, written.prices.instances.as_of) == (0.05, TODAY, TODAY)
    assert (database.usd, database.source) == (0.168, "AWS Price List API")


def test_one_missing_instance_price_leaves_all_of_them_unchanged(catalog_file: Path) -> None:
    before = catalog_file.read_text(encoding="utf-8")
    write(PriceList((Quote("g6.xlarge", 9), Missing("g5.xlarge", "none")), (), ()), catalog_file, today=TODAY)
    assert catalog_file.read_text(encoding="utf-8") == before

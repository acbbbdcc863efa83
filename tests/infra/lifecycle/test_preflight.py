"""The preflight against moto, and against botocore's stub for capacity reservations, which moto lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws
from moto.core.exceptions import JsonRESTError
from moto.servicequotas.exceptions import NoSuchResource
from moto.servicequotas.models import ServiceQuotasBackend

from infra.lifecycle.aws import Client
from infra.lifecycle.preflight import (
    Case,
    capacity_blocks_have_not_ended,
    check,
    problems,
    quotas_suffice,
    reservations_match_the_settings,
)
from infra.spec import release_rules
from infra.spec.catalog import load_catalog
from infra.spec.errors import RefusedError
from infra.spec.release import load_release
from infra.spec.settings import from_mapping
from platform_charts.charts.crds import CrdFolder
from tests.infra.spec.samples import Tree, changed, dev_sections, prod_sections

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MOTO_ACCOUNT = "123456789012"
RESERVATION = {"kind": "reservation", "id": "cr-0123456789abcdef0", "availability_zone": "us-east-1a"}


def quota(value: float) -> Tree:
    """A quota in the form of the API."""
    return {"QuotaName": "Running vCPUs", "Value": value}


@pytest.fixture
def quotas(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, float]]:
    """AWS with one account; EC2 quotas, which moto lacks, come from the dictionary; default 10,000."""
    values: dict[str, float] = {}

    def get(_: ServiceQuotasBackend, service_code: str, quota_code: str) -> Tree:
        if service_code != "ec2":
            raise NoSuchResource
        return quota(values.get(quota_code, 10_000))

    monkeypatch.setattr(ServiceQuotasBackend, "get_service_quota", get)
    with mock_aws():
        yield values


class NoCluster:
    """An environment without a cluster."""

    def crds(self) -> None:
        """None."""

    def api(self) -> None:
        """None."""


def case(changes: Tree | None = None, *, sections: Tree | None = None, account: str = MOTO_ACCOUNT) -> Case:
    """The preflight of the dev sample with changes."""
    tree = changed(sections or dev_sections(), {"aws.allowed_accounts": [account], **(changes or {})})
    return Case(
        settings=from_mapping(tree, file="sample"),
        catalog=load_catalog(),
        release=load_release(),
        project=release_rules.read_project(),
        session=boto3.Session(region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"),
        now=NOW,
        cluster=NoCluster(),
        crds=CrdFolder(Path("none")),
    )


def messages(one: Case) -> list[str]:
    """Problems as printed."""
    return [str(problem) for problem in problems(one)]


@pytest.mark.usefixtures("quotas")
def test_an_account_with_sufficient_quotas_passes() -> None:
    assert messages(case()) == []


def test_an_insufficient_quota_is_named_with_both_figures(quotas: dict[str, float]) -> None:
    quotas["L-417A185B"] = 192
    (problem,) = messages(case())
    assert "Running vCPUs (L-417A185B) is 192 vCPUs, the groups at max_size need 384" in problem
    assert "request 384 or more" in problem


def test_spot_groups_count_against_the_spot_quota(quotas: dict[str, float]) -> None:
    quotas["L-3819A6DF"] = 15
    (problem,) = messages(case())
    assert "(L-3819A6DF) is 15 vCPUs" in problem
    assert "need 16" in problem


@pytest.mark.usefixtures("quotas")
def test_a_disallowed_account_is_refused_before_any_check() -> None:
    with pytest.raises(RefusedError, match=r"AWS account 123456789012 may not hold environment dev") as caught:
        problems(case(account="111122223333"))
    assert caught.value.status == 3


@pytest.mark.usefixtures("quotas")
def test_an_instance_that_a_zone_does_not_offer_is_named() -> None:
    zones = {"network.availability_zones": ["us-east-1a", "us-east-1b", "us-east-1e"]}
    (problem,) = [one for one in messages(case(zones)) if "group t4" in one]
    assert "g4dn.xlarge is not offered in us-east-1e" in problem


@pytest.mark.usefixtures("quotas")
def test_an_expired_test_cluster_is_not_brought_up() -> None:
    sections = changed(
        dev_sections(),
        {
            "environment": {"name": "t-1", "kind": "test", "owner": "a@b.cc", "expires": "2029-12-31T00:00:00Z"},
            "budget": {"monthly_usd": 5, "email": "a@b.cc"},
        },
    )
    (problem,) = messages(case(sections=sections))
    assert "expired at 2029-12-31" in problem


@pytest.mark.usefixtures("quotas")
def test_prod_refuses_a_release_with_unresolved_entries() -> None:
    (problem,) = messages(case(sections=prod_sections()))
    assert "unresolved entries, which prod refuses" in problem
    assert "make release-lock" in problem


def test_every_problem_is_in_the_refusal(quotas: dict[str, float]) -> None:
    quotas.update({"L-417A185B": 1, "L-3819A6DF": 1})
    with pytest.raises(RefusedError, match=r"preflight of dev: 2 problem\(s\)"):
        check(case())


class _Session:
    """A session with one client, stubbed by botocore."""

    def __init__(self, service: str) -> None:
        self._service = service
        self.stubbed = boto3.client(service, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
        self.stub = Stubber(self.stubbed)
        self.stub.activate()

    def client(self, service: str) -> Client:
        """The client."""
        assert service == self._service
        return self.stubbed


def test_a_quota_without_an_applied_value_has_awss_default() -> None:
    session = _Session("service-quotas")
    session.stub.add_client_error("get_service_quota", "NoSuchResourceException")
    session.stub.add_response("get_aws_default_service_quota", {"Quota": quota(5)})
    one = case({"gpu_groups": [], "teams": []})
    (said, _), *others = quotas_suffice(replace(one, session=session))
    assert "is 5 vCPUs" in said
    assert others == []


def test_a_missing_permission_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise JsonRESTError("AccessDeniedException", "not authorized to perform servicequotas:GetServiceQuota")

    monkeypatch.setattr(ServiceQuotasBackend, "get_service_quota", refuse)
    with mock_aws():
        (problem,) = messages(case())
    assert "not authorized to perform servicequotas:GetServiceQuota" in problem
    assert "grant these credentials this read permission" in problem


ACTIVE = {
    "InstanceType": "p5.48xlarge",
    "AvailabilityZone": "us-east-1a",
    "State": "active",
    "TotalInstanceCount": 2,
}


@pytest.mark.parametrize(
    ("reservation", "message"),
    [
        ({}, None),
        ({"InstanceType": "p4d.24xlarge"}, "has InstanceType p4d.24xlarge, the group needs p5.48xlarge"),
        ({"AvailabilityZone": "us-east-1b"}, "has AvailabilityZone us-east-1b, the group needs us-east-1a"),
        ({"State": "expired"}, "has State expired, the group needs active"),
        ({"TotalInstanceCount": 1}, "holds 1 instances, max_size is 2"),
    ],
)
def test_a_reservation_must_match_the_settings(reservation: Tree, message: str | None) -> None:
    session = _Session("ec2")
    session.stub.add_response("describe_capacity_reservations", {"CapacityReservations": [{**ACTIVE, **reservation}]})
    one = replace(case({"gpu_groups.1.capacity": RESERVATION, "gpu_groups.1.placement": "none"}), session=session)
    found = [said for said, _ in reservations_match_the_settings(one)]
    assert found == ([] if message is None else [f"group h100: cr-0123456789abcdef0 {message}"])


def test_a_block_that_has_ended_is_named() -> None:
    block = {**RESERVATION, "kind": "capacity_block", "ends": "2029-12-31T00:00:00Z"}
    one = case({"gpu_groups.1.capacity": block, "gpu_groups.1.placement": "none"})
    found = [said for said, _ in capacity_blocks_have_not_ended(one)]
    assert found == ["group h100: cr-0123456789abcdef0 ended at 2029-12-31T00:00:00+00:00"]

"""The preflight against moto, and against botocore's stub for capacity reservations, which moto lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import NoReturn

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws
from moto.core.exceptions import JsonRESTError
from moto.servicequotas.exceptions import NoSuchResource
from moto.servicequotas.models import ServiceQuotasBackend

from infra.lifecycle.account.aws import Client
from infra.lifecycle.commands.own_images import OwnImages
from infra.lifecycle.image.recipes import IMAGES
from infra.lifecycle.preflight import checks as preflight
from infra.lifecycle.preflight.case import Case
from infra.lifecycle.preflight.checks import (
    capacity_blocks_have_not_ended,
    check,
    notes,
    problems,
    quotas_suffice,
    reservations_match_the_settings,
)
from infra.lifecycle.stack.bring_up import BringUp
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


class Inside:
    """A machine that reaches everything, from an address inside 198.51.100.0/24."""

    def connect(self, _url: str) -> None:
        """None."""

    def public_address(self) -> IPv4Address:
        """The address."""
        return IPv4Address("198.51.100.7")

    def missing_programs(self) -> tuple[str, ...]:
        """None is missing."""
        return ()


def signed_in(role: str | None) -> boto3.Session:
    """A session of a role in moto's account; None: with credentials that no one asks."""
    if role is None:
        return boto3.Session(region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    sts = boto3.client("sts", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    arn = f"arn:aws:iam::{MOTO_ACCOUNT}:role/{role}"
    found = sts.assume_role(RoleArn=arn, RoleSessionName="alice")["Credentials"]
    return boto3.Session(
        region_name="us-east-1",
        aws_access_key_id=found["AccessKeyId"],
        aws_secret_access_key=found["SecretAccessKey"],
        aws_session_token=found["SessionToken"],
    )


def case(
    changes: Tree | None = None,
    *,
    sections: Tree | None = None,
    account: str = MOTO_ACCOUNT,
    role: str | None = "admin",
) -> Case:
    """The preflight of the dev sample with changes, by a session of a role."""
    admins = [f"arn:aws:iam::{MOTO_ACCOUNT}:role/admin"]
    ours = {"aws.allowed_accounts": [account], "cluster.admin_roles": admins}
    tree = changed(sections or dev_sections(), {**ours, **(changes or {})})
    return Case(
        settings=from_mapping(tree, file="sample"),
        catalog=load_catalog(),
        release=load_release(),
        project=release_rules.read_project(),
        session=signed_in(role),
        now=NOW,
        cluster=NoCluster(),
        crds=CrdFolder(Path("none")),
        probe=Inside(),
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
def test_a_caller_who_is_no_administrator_is_named_with_the_roles_that_are() -> None:
    (problem,) = messages(case(role="viewer"))
    assert "assumed-role/viewer/alice; cluster.admin_roles is arn:aws:iam::123456789012:role/admin" in problem


@pytest.mark.usefixtures("quotas")
def test_a_machine_outside_the_public_ranges_is_named_before_anything_is_created() -> None:
    (problem,) = messages(case({"cluster.public_cidrs": ["203.0.113.0/24"]}))
    assert "this machine's address is 198.51.100.7; cluster.public_cidrs is 203.0.113.0/24" in problem


@pytest.mark.usefixtures("quotas")
def test_a_reaper_in_an_account_that_production_may_be_in_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = from_mapping(changed(prod_sections(), {"aws.allowed_accounts": [MOTO_ACCOUNT]}), file="sample")
    assert messages(case({"reaper": {}})) == []
    monkeypatch.setattr(preflight, "environment_names", lambda: ("prod",))
    monkeypatch.setattr(preflight, "load_environment", lambda _: beside)
    (problem,) = messages(case({"reaper": {}}))
    assert "account 123456789012 may hold dev, a production environment" in problem
    assert messages(case()) == []


@pytest.mark.usefixtures("quotas")
def test_an_instance_that_a_zone_does_not_offer_is_named() -> None:
    zones = {"network.availability_zones": ["us-east-1a", "us-east-1b", "us-east-1e"]}
    (problem,) = [one for one in messages(case(zones)) if "group t4" in one]
    assert "g4dn.xlarge is not offered in us-east-1e" in problem


@pytest.mark.usefixtures("quotas")
@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("us-east-1e", "EKS makes no control plane in us-east-1e, which is zone use1-az3 in this account"),
        ("us-east-1z", "the account has no zone us-east-1z in us-east-1"),
    ],
)
def test_a_zone_without_a_control_plane_is_named_with_those_that_have_one(zone: str, expected: str) -> None:
    changes = {"network.availability_zones": ["us-east-1a", "us-east-1b", zone], "gpu_groups": [], "teams": []}
    (problem,) = [one for one in messages(case(changes)) if "control plane" in one]
    assert expected in problem
    assert (
        "network.availability_zones to zones of us-east-1a, us-east-1b, us-east-1c, us-east-1d, us-east-1f" in problem
    )


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
    one = case({"gpu_groups": [], "teams": []}, role=None)
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
    one = replace(
        case({"gpu_groups.1.capacity": RESERVATION, "gpu_groups.1.placement": "none"}, role=None), session=session
    )
    found = [said for said, _ in reservations_match_the_settings(one)]
    assert found == ([] if message is None else [f"group h100: cr-0123456789abcdef0 {message}"])


def test_a_block_that_has_ended_is_named() -> None:
    block = {**RESERVATION, "kind": "capacity_block", "ends": "2029-12-31T00:00:00Z"}
    one = case({"gpu_groups.1.capacity": block, "gpu_groups.1.placement": "none"}, role=None)
    found = [said for said, _ in capacity_blocks_have_not_ended(one)]
    assert found == ["group h100: cr-0123456789abcdef0 ended at 2029-12-31T00:00:00+00:00"]


@pytest.mark.usefixtures("quotas")
def test_before_an_update_aws_is_asked_once_for_what_the_account_has() -> None:
    one, asked, until_update = case(), Counter[str](), Counter[str]()
    one.session.events.register("before-call", lambda model, **_: asked.update([model.name]))

    def update(*_: str) -> int:
        until_update.update(asked)
        return 1

    assert problems(one) == ()
    BringUp(
        settings=one.settings,
        account=one.account,
        session=one.session,
        probe=one.probe,
        images=OwnImages("dev", promote_from="staging"),
        pulumi=update,
        update=update,
        say=print,
    ).run()
    assert until_update["DescribeCluster"] == 1
    assert until_update["DescribeRepositories"] == len(IMAGES)
    assert until_update["GetCallerIdentity"] == 2


def with_lustre(zone: str = "us-east-1a") -> Tree:
    """Changes that give the sample an FSx for Lustre file system of the bucket `corpus`."""
    return {"storage": {"lustre": {"source": "s3://corpus/imagenet", "availability_zone": zone}}}


def make_bucket(region: str) -> None:
    """Make the bucket `corpus` in a region."""
    client = boto3.client("s3", region_name=region, aws_access_key_id="x", aws_secret_access_key="x")
    where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    client.create_bucket(Bucket="corpus", **where)


@pytest.mark.usefixtures("quotas")
def test_a_linked_bucket_of_the_region_passes() -> None:
    make_bucket("us-east-1")
    assert messages(case(with_lustre())) == []


@pytest.mark.usefixtures("quotas")
def test_a_linked_bucket_of_another_region_is_refused_before_anything_is_created() -> None:
    make_bucket("eu-west-1")
    (problem,) = messages(case(with_lustre()))
    assert "bucket corpus of storage.lustre.source is in eu-west-1, the stack in us-east-1" in problem
    assert "remedy: copy the data to a bucket of us-east-1" in problem


@pytest.mark.usefixtures("quotas")
def test_a_linked_bucket_that_is_not_there_is_refused_by_name() -> None:
    (problem,) = messages(case(with_lustre()))
    assert "S3 answers 404 to a request for bucket corpus of storage.lustre.source" in problem
    assert "let these credentials list it" in problem


def test_groups_whose_nodes_may_be_far_from_lustre_are_named() -> None:
    found = [one for one in notes(case(with_lustre(), role=None)) if "storage.lustre" in one]
    assert found == [
        "storage.lustre is in us-east-1a: jobs of t4 may run in other zones, where its reads are slower and billed as traffic"
    ]


def test_an_environment_whose_groups_are_all_in_its_zone_has_no_such_note() -> None:
    near = {**with_lustre(), "gpu_groups.0.availability_zones": ["us-east-1a"]}
    assert [one for one in notes(case(near, role=None)) if "lustre" in one] == []

"""The preflight against moto, and against botocore's stub for capacity reservations, which moto lacks; fields that a schema drops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

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
from infra.lifecycle.preflight.checks import check, notes, problems
from infra.lifecycle.preflight.crd_fields import dropped
from infra.lifecycle.sandbox.modules import KUBERAY, PREVIOUS_KUBERAY, Module
from infra.lifecycle.stack.bring_up import BringUp
from infra.spec import release_rules
from infra.spec.catalog import load_catalog
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from infra.spec.release import load_release
from infra.spec.settings import from_mapping
from platform_charts.charts.crds import CrdFolder
from platform_charts.jobs.rayjob import render_job
from tests.engines.kubernetes import crds_of
from tests.engines.kubernetes_jobs import job
from tests.infra.lifecycle.access.test_reach import Machine
from tests.infra.spec.samples import Tree, changed, dev_sections, prod_sections
from tests.training.cluster.team_cluster import target

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MOTO_ACCOUNT = "123456789012"
RESERVATION = {"kind": "reservation", "id": "cr-0123456789abcdef0", "availability_zone": "us-east-1a"}


@pytest.fixture
def quotas(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, float]]:
    """AWS with one account; EC2 quotas, which moto lacks, come from the dictionary; default 10,000."""
    values: dict[str, float] = {}

    def get(_: ServiceQuotasBackend, service_code: str, quota_code: str) -> Tree:
        if service_code != "ec2":
            raise NoSuchResource
        return {"QuotaName": "Running vCPUs", "Value": values.get(quota_code, 10_000)}

    monkeypatch.setattr(ServiceQuotasBackend, "get_service_quota", get)
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # 1,300 images, of no use here
    with mock_aws():
        yield values


class NoCluster:
    """An environment without a cluster."""

    def crds(self) -> None:
        """None."""

    def api(self) -> None:
        """None."""


def signed_in(role: str | None) -> boto3.Session:
    """A session of a role in moto's account; None: with credentials that no one asks."""
    if role is None:
        return boto3.Session(region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    arn = f"arn:aws:iam::{MOTO_ACCOUNT}:role/{role}"
    found = signed_in(None).client("sts").assume_role(RoleArn=arn, RoleSessionName="alice")["Credentials"]
    keys = {"aws_access_key_id": found["AccessKeyId"], "aws_secret_access_key": found["SecretAccessKey"]}
    return boto3.Session(region_name="us-east-1", aws_session_token=found["SessionToken"], **keys)


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
        probe=Machine(),
    )


def messages(one: Case) -> list[str]:
    return [str(problem) for problem in problems(one)]


def test_an_insufficient_quota_is_named_with_both_figures(quotas: dict[str, float]) -> None:
    assert messages(case()) == []
    quotas.update({"L-417A185B": 192, "L-3819A6DF": 15})
    on_demand, spot = sorted(messages(case()), key=lambda one: "L-3819A6DF" in one)
    assert "Running vCPUs (L-417A185B) is 192 vCPUs, the groups at max_size need 384" in on_demand
    assert "request 384 or more" in on_demand
    assert "(L-3819A6DF) is 15 vCPUs" in spot
    assert "need 16" in spot
    with pytest.raises(RefusedError, match=r"preflight of dev: 2 problem\(s\)"):
        check(case())


@pytest.mark.usefixtures("quotas")
def test_a_disallowed_account_is_refused_before_any_check() -> None:
    with pytest.raises(RefusedError, match=r"AWS account 123456789012 may not hold environment dev") as caught:
        problems(case(account="111122223333"))
    assert caught.value.status == 3


def with_lustre() -> Tree:
    """Changes that give the sample an FSx for Lustre file system of the bucket `corpus`."""
    return {"storage": {"lustre": {"source": "s3://corpus/imagenet", "availability_zone": "us-east-1a"}}}


NETWORK = "network.availability_zones"
HOME = ["us-east-1a", "us-east-1b"]
WITHOUT_GROUPS: Tree = {"gpu_groups": [], "teams": []}


@pytest.mark.extended
@pytest.mark.usefixtures("quotas")
@pytest.mark.parametrize(
    ("changes", "role", "expected"),
    [
        ({}, "viewer", "role/viewer/alice; cluster.admin_roles is arn:aws:iam::123456789012:role/admin"),
        ({"cluster.public_cidrs": ["203.0.113.0/24"]}, "admin", "198.51.100.7; cluster.public_cidrs is 203.0.113.0/24"),
        ({NETWORK: [*HOME, "us-east-1e"], **WITHOUT_GROUPS}, "admin", "in us-east-1e, which is zone use1-az3 in this"),
        ({NETWORK: [*HOME, "us-east-1z"], **WITHOUT_GROUPS}, "admin", "us-east-1b, us-east-1c, us-east-1d, us-east-1f"),
        (with_lustre(), "admin", "S3 answers 404 to a request for bucket corpus of storage.lustre.source"),
    ],
)
def test_what_the_account_or_this_machine_lacks_is_named(changes: Tree, role: str, expected: str) -> None:
    told = [one for one in messages(case(changes, role=role)) if "is not offered" not in one]
    assert len(told) == 1
    assert expected in told[0]


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
    (problem,) = [one for one in messages(case({NETWORK: [*HOME, "us-east-1e"]})) if "group t4" in one]
    assert "g4dn.xlarge is not offered in us-east-1e" in problem


@pytest.mark.usefixtures("quotas")
def test_an_expired_test_cluster_and_an_unresolved_release_in_prod_are_not_brought_up() -> None:
    environment = {"name": "t-1", "kind": "test", "owner": "a@b.cc", "expires": "2029-12-31T00:00:00Z"}
    sections = changed(dev_sections(), {"environment": environment, "budget": {"monthly_usd": 5, "email": "a@b.cc"}})
    (problem,) = messages(case(sections=sections))
    assert "expired at 2029-12-31" in problem
    (problem,) = messages(case(sections=prod_sections()))
    assert "unresolved entries, which prod refuses" in problem
    assert "make release-lock" in problem


class _Session:
    """A session with a client of EC2, stubbed by botocore."""

    def __init__(self) -> None:
        self.stubbed = signed_in(None).client("ec2")
        self.stub = Stubber(self.stubbed)
        self.stub.activate()

    def client(self, service: str) -> Client:
        assert service == "ec2"
        return self.stubbed


def test_a_missing_permission_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise JsonRESTError("AccessDeniedException", "not authorized to perform servicequotas:GetServiceQuota")

    monkeypatch.setattr(ServiceQuotasBackend, "get_service_quota", refuse)
    with mock_aws():
        (problem,) = messages(case())
    assert "not authorized to perform servicequotas:GetServiceQuota" in problem
    assert "grant these credentials this read permission" in problem


ACTIVE = {"InstanceType": "p5.48xlarge", "AvailabilityZone": "us-east-1a", "State": "active", "TotalInstanceCount": 2}


def test_a_reservation_must_match_the_settings() -> None:
    said_of: dict[str, Tree] = {
        "": {},
        "has InstanceType p4d.24xlarge, the group needs p5.48xlarge": {"InstanceType": "p4d.24xlarge"},
        "has AvailabilityZone us-east-1b, the group needs us-east-1a": {"AvailabilityZone": "us-east-1b"},
        "has State expired, the group needs active": {"State": "expired"},
        "holds 1 instances, max_size is 2": {"TotalInstanceCount": 1},
    }
    settings = case({"gpu_groups.1.capacity": RESERVATION, "gpu_groups.1.placement": "none"}, role=None)
    for message, reservation in said_of.items():
        session = _Session()
        found = {"CapacityReservations": [{**ACTIVE, **reservation}]}
        session.stub.add_response("describe_capacity_reservations", found)
        told = [said for said, _ in preflight.reservations_match_the_settings(replace(settings, session=session))]
        assert told == [f"group h100: cr-0123456789abcdef0 {message}"] * bool(message)


def test_a_block_that_has_ended_is_named() -> None:
    block = {**RESERVATION, "kind": "capacity_block", "ends": "2029-12-31T00:00:00Z"}
    one = case({"gpu_groups.1.capacity": block, "gpu_groups.1.placement": "none"}, role=None)
    found = [said for said, _ in preflight.capacity_blocks_have_not_ended(one)]
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


@pytest.mark.usefixtures("quotas")
def test_a_linked_bucket_is_in_the_region() -> None:
    client = signed_in(None).client("s3")
    client.create_bucket(Bucket="corpus")
    assert messages(case(with_lustre())) == []
    client.delete_bucket(Bucket="corpus")
    client.create_bucket(Bucket="corpus", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    (problem,) = messages(case(with_lustre()))
    assert "bucket corpus of storage.lustre.source is in eu-west-1, the stack in us-east-1" in problem


def test_groups_whose_nodes_may_be_far_from_lustre_are_named() -> None:
    found = [one for one in notes(case(with_lustre(), role=None)) if "storage.lustre" in one]
    assert [one.partition(", where")[0] for one in found] == [
        "storage.lustre is in us-east-1a: jobs of t4 may run in other zones"
    ]
    near = {**with_lustre(), "gpu_groups.0.availability_zones": ["us-east-1a"]}
    assert [one for one in notes(case(near, role=None)) if "lustre" in one] == []


KEEPS = {"x-kubernetes-preserve-unknown-fields": True}
EMBEDDED = {"x-kubernetes-embedded-resource": True, "properties": {"spec": {"properties": {}}}}


def schema(kuberay: Module) -> Manifest:
    (crd,) = [one for one in crds_of(kuberay) if one["spec"]["names"]["kind"] == "RayJob"]
    (version,) = [one for one in crd["spec"]["versions"] if one["storage"]]
    found: Manifest = version["schema"]["openAPIV3Schema"]
    return found


@pytest.mark.extended
def test_a_job_has_no_field_that_the_pinned_crd_lacks_and_one_that_the_minor_before_lacks() -> None:
    *_, rayjob = render_job(job("fields", team="research", group="a10g", workers=8), target())
    assert list(dropped({"spec": rayjob["spec"]}, schema(KUBERAY))) == []
    # The API server of a cluster with these CRDs refuses the job for this field.
    assert list(dropped({"spec": rayjob["spec"]}, schema(PREVIOUS_KUBERAY))) == ["spec.preRunningDeadlineSeconds"]


def test_a_field_is_dropped_unless_the_schema_names_it_or_keeps_what_it_does_not_name() -> None:
    cases: tuple[tuple[dict[str, Any], dict[str, Any], list[str]], ...] = (
        ({"a": 1}, {"properties": {"a": {}}}, []),
        ({"a": 1, "b": {"c": 2}}, {"properties": {"a": {}}}, ["b"]),
        ({"a": {"b": 1}}, {"properties": {"a": {"properties": {}}}}, ["a.b"]),
        ({"a": {"b": 1}}, {"properties": {"a": KEEPS}}, []),
        ({"a": {"b": 1}, "c": 2}, {**KEEPS, "properties": {"a": {"properties": {}}}}, ["a.b"]),
        ({"a": {"any": {"b": 1}}}, {"properties": {"a": {"additionalProperties": {"properties": {}}}}}, ["a.any.b"]),
        ({"a": {"any": "text"}}, {"properties": {"a": {"additionalProperties": True}}}, []),
        ({"a": [{"b": 1}, {"c": 2}]}, {"properties": {"a": {"items": {"properties": {"b": {}}}}}}, ["a[].c"]),
        ({"kind": "Pod", "metadata": {"name": "x"}, "spec": {"b": 1}}, EMBEDDED, ["spec.b"]),
    )
    for value, schema, paths in cases:
        assert list(dropped(value, schema)) == paths, value

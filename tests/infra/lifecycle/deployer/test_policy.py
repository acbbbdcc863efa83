"""The deployer's policies for every environment: complete, small enough, and no wider than the environment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws, settings
from moto.core.authorization import ActionAuthenticatorMixin
from moto.iam import aws_managed_policies

from infra.lifecycle.cli import main
from infra.lifecycle.deployer.policy import MAX_CHARACTERS, TABLE, deployer_policies
from infra.preview.recording import Recording
from infra.spec.names import stack_tag
from tests.infra.aws.graphs import ENVIRONMENTS, EXISTING, graph, settings_of, unusual
from tests.infra.lifecycle.deployer.decisions import is_allowed

MAX_POLICIES = 10
"""Managed policies per role (IAM user guide, "IAM and AWS STS quotas")."""

WITHOUT_LIMITS = {"pricing:GetProducts"}
"""Actions on every resource without a condition: the Price List API knows neither."""

ACCOUNT = settings_of("dev").aws.allowed_accounts[0]
REGION = settings_of("dev").aws.region
OURS = {"aws:ResourceTag/stack": stack_tag(settings_of("dev"))}
NEW = {"aws:RequestTag/stack": stack_tag(settings_of("dev"))}
FOREIGN = {"aws:ResourceTag/stack": stack_tag(settings_of("prod"))}


@cache
def statements(environment: str) -> list[dict[str, Any]]:
    """Every statement of an environment."""
    policies = deployer_policies(settings_of(environment), graph(environment))
    return [statement for policy in policies for statement in policy.document["Statement"]]


def ec2(kind: str) -> str:
    """ARN of an EC2 resource."""
    return f"arn:aws:ec2:{REGION}:{ACCOUNT}:{kind}/{kind}-0a1b2c3d4e5f60718"


def test_every_type_of_every_graph_has_a_row() -> None:
    environments = (*ENVIRONMENTS, "lustre", *EXISTING)
    types = {one.type for environment in environments for one in graph(environment).resources} | {
        one.type for one in unusual().resources
    }
    assert {type_ for type_ in types if type_.startswith("aws:")} == set(TABLE)


def test_a_type_without_a_row_is_refused_by_name() -> None:
    vpc = graph("dev").find("aws:ec2/vpc:Vpc", "vpc")
    recording = Recording((vpc, replace(vpc, type="aws:fsx/openZfsFileSystem:OpenZfsFileSystem")), {})
    with pytest.raises(ValueError, match="no permissions for aws:fsx/openZfsFileSystem:OpenZfsFileSystem: add a row"):
        deployer_policies(settings_of("dev"), recording)


@pytest.mark.parametrize("environment", [*ENVIRONMENTS, "lustre", *EXISTING])
def test_every_policy_is_below_the_limits_of_iam(environment: str) -> None:
    policies = deployer_policies(settings_of(environment), graph(environment))
    assert all(policy.size <= MAX_CHARACTERS for policy in policies)
    assert len(policies) <= MAX_POLICIES
    sids = [statement["Sid"] for statement in statements(environment)]
    assert len(set(sids)) == len(sids)
    assert all(sid.isalnum() for sid in sids)


@pytest.mark.parametrize("environment", [*ENVIRONMENTS, "lustre", *EXISTING])
def test_no_action_has_a_wildcard_and_no_wide_resource_lacks_a_condition(environment: str) -> None:
    for statement in statements(environment):
        assert not any("*" in action for action in statement["Action"]), statement
        if "*" in statement["Resource"] and set(statement["Action"]) != WITHOUT_LIMITS:
            assert statement.get("Condition"), statement


SERVICES = {"elasticfilesystem": "efs", "servicequotas": "service-quotas"}
"""Services whose name in the SDK differs from that in IAM."""


def operations(service: str) -> set[str]:
    """Operations of the service's API, most of which are IAM actions of the same name."""
    model = botocore.session.get_session().get_service_model(SERVICES.get(service, service))
    return set(model.operation_names)


def test_every_action_exists() -> None:
    recorded = Path(aws_managed_policies.__file__).read_text(encoding="utf-8").lower()
    used = {
        action
        for environment in (*ENVIRONMENTS, *EXISTING)
        for one in statements(environment)
        for action in one["Action"]
    }
    used |= {action for grants in TABLE.values() for grant in grants for action in grant.actions}
    by_service: dict[str, set[str]] = {}
    for action in used:
        by_service.setdefault(action.partition(":")[0], set()).add(action)
    unknown = {
        action
        for service, names in by_service.items()
        for action in names
        if action.partition(":")[2] not in operations(service) and f'"{action.lower()}"' not in recorded
    }
    assert unknown == set()


@pytest.mark.parametrize(
    ("action", "resource", "context"),
    [
        ("ec2:CreateVpc", ec2("vpc"), NEW),
        ("ec2:CreateSubnet", ec2("subnet"), NEW),
        ("ec2:CreateSubnet", ec2("vpc"), OURS),
        ("ec2:DeleteVpc", ec2("vpc"), OURS),
        ("ec2:CreateTags", ec2("vpc"), {**NEW, "ec2:CreateAction": "CreateVpc"}),
        ("ec2:CreateTags", ec2("security-group"), {}),  # the default group of a new VPC
        ("ec2:DescribeVpcs", "*", {"aws:RequestedRegion": REGION}),
        ("iam:CreateRole", f"arn:aws:iam::{ACCOUNT}:role/trainer-1a2b3c4", {}),
        ("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/cluster-1a2b3c4", {"iam:PassedToService": "eks.amazonaws.com"}),
        (
            "iam:PassRole",
            f"arn:aws:iam::{ACCOUNT}:role/trainer-1a2b3c4",
            {"iam:PassedToService": "pods.eks.amazonaws.com"},
        ),
        ("kms:ScheduleKeyDeletion", f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1", OURS),
        ("kms:CreateAlias", f"arn:aws:kms:{REGION}:{ACCOUNT}:alias/rtp-dev/cluster", {}),
        ("s3:CreateBucket", f"arn:aws:s3:::rtp-dev-checkpoints-{ACCOUNT}", {}),
        ("s3:PutObject", f"arn:aws:s3:::rtp-dev-state-{ACCOUNT}/.pulumi/stacks/dev.json", {}),
        ("eks:CreateCluster", f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/rtp-dev", {}),
        ("logs:CreateLogGroup", f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/aws/eks/rtp-dev/cluster", {}),
        ("servicequotas:GetServiceQuota", "*", {"aws:RequestedRegion": REGION}),
        (
            "iam:CreateServiceLinkedRole",
            f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/x",
            {"iam:AWSServiceName": "eks.amazonaws.com"},
        ),
    ],
)
def test_what_the_environment_needs_is_allowed(action: str, resource: str, context: dict[str, str]) -> None:
    assert is_allowed(statements("dev"), action, resource, context)


LUSTRE = f"arn:aws:fsx:{REGION}:{ACCOUNT}:file-system/fs-0123456789abcdef0"
LUSTRE_LINK = f"arn:aws:fsx:{REGION}:{ACCOUNT}:association/fs-0123456789abcdef0/dra-0123456789abcdef0"
LINK_ROLES = "role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com"


@pytest.mark.parametrize(
    ("action", "resource", "context"),
    [
        ("fsx:CreateFileSystem", LUSTRE, NEW),
        ("fsx:DeleteFileSystem", LUSTRE, OURS),
        ("fsx:CreateDataRepositoryAssociation", LUSTRE_LINK, NEW),
        ("fsx:CreateDataRepositoryAssociation", LUSTRE, OURS),
        ("fsx:DescribeDataRepositoryAssociations", "*", {"aws:RequestedRegion": REGION}),
        ("s3:ListBucket", "arn:aws:s3:::corpus", {}),
        (
            "iam:PutRolePolicy",
            f"arn:aws:iam::{ACCOUNT}:{LINK_ROLES}/AWSServiceRoleForFSxS3Access_fs-0123456789abcdef0",
            {},
        ),
        (
            "iam:CreateServiceLinkedRole",
            f"arn:aws:iam::{ACCOUNT}:{LINK_ROLES}/x",
            {"iam:AWSServiceName": "s3.data-source.lustre.fsx.amazonaws.com"},
        ),
        (
            "iam:CreateServiceLinkedRole",
            f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/x",
            {"iam:AWSServiceName": "fsx.amazonaws.com"},
        ),
    ],
)
def test_lustre_is_allowed_where_the_environment_has_it_and_only_there(
    action: str, resource: str, context: dict[str, str]
) -> None:
    assert is_allowed(statements("lustre"), action, resource, context)
    assert not is_allowed(statements("dev"), action, resource, context)


@pytest.mark.parametrize(
    ("action", "resource", "context"),
    [
        ("fsx:CreateFileSystem", LUSTRE, {}),
        ("fsx:DeleteFileSystem", LUSTRE, FOREIGN),
        ("fsx:CreateDataRepositoryAssociation", LUSTRE, FOREIGN),
        ("s3:ListBucket", "arn:aws:s3:::another", {}),
        ("s3:GetObject", "arn:aws:s3:::corpus/imagenet/x", {}),
        ("iam:PutRolePolicy", f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/eks.amazonaws.com/x", {}),
    ],
)
def test_lustre_widens_nothing_else(action: str, resource: str, context: dict[str, str]) -> None:
    assert not is_allowed(statements("lustre"), action, resource, context)


@pytest.mark.parametrize(
    ("action", "resource", "context"),
    [
        ("ec2:CreateVpc", ec2("vpc"), {}),
        ("ec2:CreateSubnet", ec2("vpc"), FOREIGN),
        ("ec2:CreateSubnet", ec2("vpc"), NEW),  # the tag of the new subnet does not open another VPC
        ("ec2:DeleteVpc", ec2("vpc"), FOREIGN),
        ("ec2:DeleteVpc", ec2("vpc"), {}),
        ("ec2:CreateTags", ec2("security-group"), FOREIGN),
        ("ec2:CreateTags", ec2("vpc"), NEW),  # adopts what another deployer made
        ("ec2:DescribeVpcs", "*", {"aws:RequestedRegion": "eu-west-1"}),
        ("ec2:RunInstances", ec2("instance"), {"aws:RequestedRegion": REGION}),
        ("iam:CreateRole", f"arn:aws:iam::{ACCOUNT}:role/admin", {}),
        ("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/trainer-1a2b3c4", {"iam:PassedToService": "ec2.amazonaws.com"}),
        ("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/admin", {"iam:PassedToService": "eks.amazonaws.com"}),
        (
            "iam:AttachRolePolicy",
            f"arn:aws:iam::{ACCOUNT}:role/trainer-1a2b3c4",
            {"iam:PolicyARN": "arn:aws:iam::aws:policy/AdministratorAccess"},
        ),
        ("iam:CreateUser", f"arn:aws:iam::{ACCOUNT}:user/x", {}),
        ("kms:ScheduleKeyDeletion", f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1", FOREIGN),
        ("kms:Decrypt", f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1", OURS),  # not through a service
        ("s3:DeleteBucket", f"arn:aws:s3:::rtp-prod-checkpoints-{ACCOUNT}", {}),
        ("s3:DeleteObject", f"arn:aws:s3:::rtp-dev-checkpoints-{ACCOUNT}/step-1", {}),
        ("eks:DeleteCluster", f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/rtp-prod", {}),
        ("secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:rds!db-1", {}),
    ],
)
def test_what_is_not_the_environments_is_denied(action: str, resource: str, context: dict[str, str]) -> None:
    assert not is_allowed(statements("dev"), action, resource, context)


def test_only_an_environment_whose_stores_die_with_it_may_empty_them() -> None:
    account = settings_of("test").aws.allowed_accounts[0]
    assert is_allowed(statements("test"), "s3:DeleteObject", f"arn:aws:s3:::rtp-test-4711-checkpoints-{account}/x")
    assert not any("ecr:BatchDeleteImage" in one["Action"] for one in statements("prod"))


@contextmanager
def enforced() -> Iterator[None]:
    """Moto checks every request against the caller's policies."""
    before = settings.INITIAL_NO_AUTH_ACTION_COUNT
    settings.INITIAL_NO_AUTH_ACTION_COUNT, ActionAuthenticatorMixin.request_count = 0.0, 0
    try:
        yield
    finally:
        settings.INITIAL_NO_AUTH_ACTION_COUNT = before


def test_moto_allows_and_denies_the_deployer_by_these_policies() -> None:
    with mock_aws():
        iam = boto3.client("iam", region_name=REGION, aws_access_key_id="x", aws_secret_access_key="x")
        iam.create_user(UserName="deployer")
        for policy in deployer_policies(settings_of("dev"), graph("dev")):
            arn = iam.create_policy(PolicyName=policy.name, PolicyDocument=json.dumps(policy.document))["Policy"]["Arn"]
            iam.attach_user_policy(UserName="deployer", PolicyArn=arn)
        key = iam.create_access_key(UserName="deployer")["AccessKey"]
        login = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
        s3 = boto3.client("s3", region_name=REGION, **login)
        user = boto3.client("iam", region_name=REGION, **login)
        with enforced():
            s3.create_bucket(Bucket=f"rtp-dev-checkpoints-{ACCOUNT}")
            with pytest.raises(ClientError, match="AccessDenied"):
                s3.create_bucket(Bucket=f"rtp-prod-checkpoints-{ACCOUNT}")
            with pytest.raises(ClientError, match="AccessDenied"):
                user.create_user(UserName="second")


def test_the_command_writes_one_file_per_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deployer-policy", "--env", "dev", "--file", str(tmp_path / "policy.json")]) == 0
    policies = deployer_policies(settings_of("dev"), graph("dev"))
    written = sorted(tmp_path.iterdir())
    assert [json.loads(file.read_text()) for file in written] == [policy.document for policy in policies]
    assert f"--policy-name rtp-dev-deployer-1 --policy-document file://{written[0]}" in capsys.readouterr().out


@pytest.fixture
def two_accounts(monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Lets dev live in two accounts."""
    accounts = ACCOUNT, "999988887777"
    shipped = settings_of("dev")
    shared = shipped.model_copy(update={"aws": shipped.aws.model_copy(update={"allowed_accounts": accounts})})
    monkeypatch.setattr("infra.lifecycle.commands.deployer.load_environment", lambda _: shared)
    return accounts


def test_each_allowed_account_has_policies_of_its_own(
    two_accounts: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, second = two_accounts
    assert main(["deployer-policy", "--env", "dev", "--account", second]) == 0
    found = [one for document in json.loads(capsys.readouterr().out).values() for one in document["Statement"]]
    assert is_allowed(found, "eks:CreateCluster", f"arn:aws:eks:{REGION}:{second}:cluster/rtp-dev", {})
    assert ACCOUNT not in json.dumps(found)


def test_with_several_allowed_accounts_one_is_named(
    two_accounts: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deployer-policy", "--env", "dev"]) == 2
    assert f"dev may be in several accounts: {', '.join(two_accounts)}" in capsys.readouterr().err
    assert main(["deployer-policy", "--env", "dev", "--account", "000000000000"]) == 3
    assert "AWS account 000000000000 may not hold environment dev" in capsys.readouterr().err

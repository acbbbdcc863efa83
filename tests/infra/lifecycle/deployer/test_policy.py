"""The deployer's policies for every environment: complete, small enough, and no wider than the environment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from moto.iam import aws_managed_policies

from infra.lifecycle.cli import main
from infra.lifecycle.deployer.policy import MAX_CHARACTERS, TABLE, deployer_policies
from infra.preview.recording import Recording
from infra.spec.names import stack_tag
from tests.infra.aws.graphs import ENVIRONMENTS, EXISTING, graph, settings_of, unusual
from tests.infra.aws.test_existing import UNUSUAL, unusual_cluster
from tests.infra.spec.test_existing import with_changes

MAX_POLICIES = 10
"""Managed policies per role (IAM user guide, "IAM and AWS STS quotas")."""

WITHOUT_LIMITS = {"pricing:GetProducts"}
"""Actions on every resource without a condition: the Price List API knows neither."""

ACCOUNT = settings_of("dev").aws.allowed_accounts[0]
REGION = settings_of("dev").aws.region
HERE = {"aws:RequestedRegion": REGION}
OURS = {"aws:ResourceTag/stack": stack_tag(settings_of("dev"))}
NEW = {"aws:RequestTag/stack": stack_tag(settings_of("dev"))}
FOREIGN = {"aws:ResourceTag/stack": stack_tag(settings_of("prod"))}
ANYWHERE = (*ENVIRONMENTS, "lustre", *EXISTING)

Request = tuple[str, str, dict[str, str]]
"""Action, resource and context."""


@cache
def statements(environment: str) -> list[dict[str, Any]]:
    policies = deployer_policies(settings_of(environment), graph(environment))
    return [statement for policy in policies for statement in policy.document["Statement"]]


def is_allowed(
    statements: Sequence[Mapping[str, Any]], action: str, resource: str, context: Mapping[str, str] | None = None
) -> bool:
    """Whether a statement allows the action on the resource in this request context.

    A double of IAM, whose simulator needs an account; moto knows neither conditions nor, outside S3, resources.
    """
    return any(
        statement["Effect"] == "Allow"
        and action in statement["Action"]
        and any(fnmatchcase(resource, pattern) for pattern in statement["Resource"])
        and _holds(statement.get("Condition", {}), context or {})
        for statement in statements
    )


def _holds(condition: Mapping[str, Mapping[str, Any]], context: Mapping[str, str]) -> bool:
    return all(
        _matches(operator, values, context.get(key))
        for operator, keys in condition.items()
        for key, values in keys.items()
    )


def _matches(operator: str, values: str | Sequence[str], actual: str | None) -> bool:
    wanted = [values] if isinstance(values, str) else values
    if operator.endswith("IfExists"):
        return actual is None or _matches(operator.removesuffix("IfExists"), values, actual)
    if actual is None:
        return False
    if operator in {"StringEquals", "Bool"}:
        return actual in wanted
    assert operator in {"StringLike", "ArnLike", "ArnEquals"}, f"unknown operator {operator}"
    return any(fnmatchcase(actual, pattern) for pattern in wanted)


def allowed(environment: str, requests: Iterable[Request]) -> list[Request]:
    """The requests that the deployer of an environment may make."""
    return [one for one in requests if is_allowed(statements(environment), *one)]


def arn(service: str, resource: str) -> str:
    where = {"s3": ":", "iam": f":{ACCOUNT}"}.get(service, f"{REGION}:{ACCOUNT}")
    return f"arn:aws:{service}:{where}:{resource}"


def ec2(kind: str) -> str:
    return arn("ec2", f"{kind}/{kind}-0a1b2c3d4e5f60718")


def service(name: str, key: str = "iam:PassedToService") -> dict[str, str]:
    return {key: f"{name}.amazonaws.com"}


def linked(name: str) -> dict[str, str]:
    return service(name, "iam:AWSServiceName")


def test_every_type_of_every_graph_has_a_row_and_one_without_is_refused_by_name() -> None:
    graphs = [*(graph(environment) for environment in ANYWHERE), unusual()]
    types = {one.type for each in graphs for one in each.resources}
    assert {type_ for type_ in types if type_.startswith("aws:")} == set(TABLE)
    vpc = graph("dev").find("aws:ec2/vpc:Vpc", "vpc")
    recording = Recording((vpc, replace(vpc, type="aws:fsx/openZfsFileSystem:OpenZfsFileSystem")), {})
    with pytest.raises(ValueError, match="no permissions for aws:fsx/openZfsFileSystem:OpenZfsFileSystem: add a row"):
        deployer_policies(settings_of("dev"), recording)


def test_every_policy_is_below_the_limits_of_iam_without_wildcards_or_wide_resources() -> None:
    for environment in ANYWHERE:
        policies = deployer_policies(settings_of(environment), graph(environment))
        assert all(policy.size <= MAX_CHARACTERS for policy in policies), environment
        assert len(policies) <= MAX_POLICIES, environment
        sids = [statement["Sid"] for statement in statements(environment)]
        assert len(set(sids)) == len(sids), environment
        assert all(sid.isalnum() for sid in sids), environment
        for statement in statements(environment):
            assert not any("*" in action for action in statement["Action"]), statement
            if "*" in statement["Resource"] and set(statement["Action"]) != WITHOUT_LIMITS:
                assert statement.get("Condition"), statement


SERVICES = {"elasticfilesystem": "efs", "servicequotas": "service-quotas"}
"""Services whose name in the SDK differs from that in IAM."""


def test_every_action_exists() -> None:
    """Most actions have the name of an operation of the service's API."""
    recorded = Path(aws_managed_policies.__file__).read_text(encoding="utf-8").lower()
    used = {action for name in (*ENVIRONMENTS, *EXISTING) for one in statements(name) for action in one["Action"]}
    used |= {action for grants in TABLE.values() for grant in grants for action in grant.actions}
    named = {action: action.partition(":") for action in used}
    models = botocore.session.get_session()
    by_service = {
        service: set(models.get_service_model(SERVICES.get(service, service)).operation_names)
        for service in {service for service, _, _ in named.values()}
    }
    unknown = {
        action
        for action, (service, _, operation) in named.items()
        if operation not in by_service[service] and f'"{action.lower()}"' not in recorded
    }
    assert unknown == set()


GROUP = arn("autoscaling", "autoScalingGroup:1:autoScalingGroupName/eks-system-us-east-1a-1a2b3c4-1")
SESSION = "ssm:resourceTag/aws:ssmmessages:session-id"


def test_what_the_environment_needs_is_allowed() -> None:
    needed: list[Request] = [
        ("ec2:CreateVpc", ec2("vpc"), NEW),
        ("ec2:CreateSubnet", ec2("subnet"), NEW),
        ("ec2:CreateSubnet", ec2("vpc"), OURS),
        ("ec2:DeleteVpc", ec2("vpc"), OURS),
        ("ec2:CreateTags", ec2("vpc"), {**NEW, "ec2:CreateAction": "CreateVpc"}),
        ("ec2:CreateTags", ec2("security-group"), {}),  # the default group of a new VPC
        ("ec2:DescribeVpcs", "*", HERE),
        ("iam:CreateRole", arn("iam", "role/rtp-dev/trainer-1a2b3c4"), NEW),
        ("iam:TagRole", arn("iam", "role/rtp-dev/trainer-1a2b3c4"), NEW),
        ("iam:GetRole", arn("iam", "role/rtp-dev/trainer-1a2b3c4"), {}),
        ("iam:PutRolePolicy", arn("iam", "role/rtp-dev/trainer-1a2b3c4"), OURS),
        ("iam:DeleteRole", arn("iam", "role/trainer-1a2b3c4"), OURS),  # of an older release
        ("iam:PassRole", arn("iam", "role/rtp-dev/cluster-1a2b3c4"), service("eks")),
        ("iam:PassRole", arn("iam", "role/trainer-1a2b3c4"), service("pods.eks")),
        ("rds:CreateDBParameterGroup", arn("rds", "pg:mlflow-1a2b3c4"), NEW),
        ("rds:CreateDBInstance", arn("rds", "subgrp:mlflow-1a2b3c4"), OURS),
        ("autoscaling:CreateOrUpdateTags", GROUP, {"aws:ResourceTag/eks:cluster-name": "rtp-dev"}),
        ("ssm:TerminateSession", arn("ssm", "session/me-1"), {SESSION: "${aws:userid}"}),
        ("kms:ScheduleKeyDeletion", arn("kms", "key/1"), OURS),
        ("kms:CreateAlias", arn("kms", "alias/rtp-dev/cluster"), {}),
        ("s3:CreateBucket", arn("s3", f"rtp-dev-checkpoints-{ACCOUNT}"), {}),
        ("s3:PutObject", arn("s3", f"rtp-dev-state-{ACCOUNT}/.pulumi/stacks/dev.json"), {}),
        ("eks:CreateCluster", arn("eks", "cluster/rtp-dev"), {}),
        ("logs:CreateLogGroup", arn("logs", "log-group:/aws/eks/rtp-dev/cluster"), {}),
        ("servicequotas:GetServiceQuota", "*", HERE),
        ("iam:CreateServiceLinkedRole", arn("iam", "role/aws-service-role/x"), linked("eks")),
    ]
    assert allowed("dev", needed) == needed


LUSTRE = arn("fsx", "file-system/fs-0123456789abcdef0")
LUSTRE_LINK = arn("fsx", "association/fs-0123456789abcdef0/dra-0123456789abcdef0")
LINK_ROLES = "role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com"


def test_lustre_is_allowed_where_the_environment_has_it_and_widens_nothing_else() -> None:
    needed: list[Request] = [
        ("fsx:CreateFileSystem", LUSTRE, NEW),
        ("fsx:DeleteFileSystem", LUSTRE, OURS),
        ("fsx:CreateDataRepositoryAssociation", LUSTRE_LINK, NEW),
        ("fsx:CreateDataRepositoryAssociation", LUSTRE, OURS),
        ("fsx:DescribeDataRepositoryAssociations", "*", HERE),
        ("s3:ListBucket", arn("s3", "corpus"), {}),
        ("iam:PutRolePolicy", arn("iam", f"{LINK_ROLES}/AWSServiceRoleForFSxS3Access_fs-0123456789abcdef0"), {}),
        ("iam:CreateServiceLinkedRole", arn("iam", f"{LINK_ROLES}/x"), linked("s3.data-source.lustre.fsx")),
        ("iam:CreateServiceLinkedRole", arn("iam", "role/aws-service-role/x"), linked("fsx")),
    ]
    assert allowed("lustre", needed) == needed
    assert allowed("dev", needed) == []
    wider: list[Request] = [
        ("fsx:CreateFileSystem", LUSTRE, {}),
        ("fsx:DeleteFileSystem", LUSTRE, FOREIGN),
        ("fsx:CreateDataRepositoryAssociation", LUSTRE, FOREIGN),
        ("s3:ListBucket", arn("s3", "another"), {}),
        ("s3:GetObject", arn("s3", "corpus/imagenet/x"), {}),
        ("iam:PutRolePolicy", arn("iam", "role/aws-service-role/eks.amazonaws.com/x"), {}),
    ]
    assert allowed("lustre", wider) == []


def test_what_is_not_the_environments_is_denied() -> None:
    trainer, admin = arn("iam", "role/rtp-dev/trainer-1a2b3c4"), arn("iam", "role/admin")
    policy = {"iam:PolicyARN": "arn:aws:iam::aws:policy/AdministratorAccess"}
    others: list[Request] = [
        ("ec2:CreateVpc", ec2("vpc"), {}),
        ("ec2:CreateSubnet", ec2("vpc"), FOREIGN),
        ("ec2:CreateSubnet", ec2("vpc"), NEW),  # the tag of the new subnet does not open another VPC
        ("ec2:DeleteVpc", ec2("vpc"), FOREIGN),
        ("ec2:DeleteVpc", ec2("vpc"), {}),
        ("ec2:CreateTags", ec2("security-group"), FOREIGN),
        ("ec2:CreateTags", ec2("vpc"), NEW),  # adopts what another deployer made
        ("ec2:DescribeVpcs", "*", {"aws:RequestedRegion": "eu-west-1"}),
        ("ec2:RunInstances", ec2("instance"), HERE),
        ("iam:CreateRole", admin, {}),
        ("iam:PassRole", trainer, service("ec2")),
        ("iam:PassRole", admin, service("eks")),
        ("iam:AttachRolePolicy", trainer, {**OURS, **policy}),
        ("iam:TagRole", arn("iam", "role/rtp-dev/trainer-1a2b3c4"), {**NEW, **FOREIGN}),
        ("ssm:TerminateSession", arn("ssm", "session/other-1"), {SESSION: "AROA:other"}),
        ("iam:CreateUser", arn("iam", "user/x"), {}),
        ("kms:ScheduleKeyDeletion", arn("kms", "key/1"), FOREIGN),
        ("kms:Decrypt", arn("kms", "key/1"), OURS),  # not through a service
        ("s3:DeleteBucket", arn("s3", f"rtp-prod-checkpoints-{ACCOUNT}"), {}),
        ("s3:DeleteObject", arn("s3", f"rtp-dev-checkpoints-{ACCOUNT}/step-1"), {}),
        ("eks:DeleteCluster", arn("eks", "cluster/rtp-prod"), {}),
        ("secretsmanager:GetSecretValue", arn("secretsmanager", "secret:rds!db-1"), {}),
    ]
    assert allowed("dev", others) == []


COMMON = {
    "ec2:CreateNetworkInterface",  # without resource-level permissions
    "ec2:RunInstances",  # from any launch template of the account, with a role that it may pass
    "iam:CreateServiceLinkedRole",  # one for the account
    "rds:CreateDBInstance",  # with RDS's own option group
    "rds:ModifyDBInstance",
    "secretsmanager:CreateSecret",  # which RDS names
    "secretsmanager:TagResource",
    "ssm:StartSession",  # with AWS's document, on the environment's nodes
    "ssm:TerminateSession",  # of the caller
}
"""Writes that name nothing of an environment."""


def own_requests(environment: str) -> Iterator[Request]:
    """A request for every action and resource of the deployer's statements, for what has the environment's tag."""
    tag = {"aws:ResourceTag/stack": stack_tag(settings_of(environment))}
    for statement in statements(environment):
        keys = [pair for block in statement.get("Condition", {}).values() for pair in block.items()]
        context = {key: example(value if isinstance(value, str) else value[0]) for key, value in keys}
        for action, resource in product(statement["Action"], statement["Resource"]):
            yield action, example(resource), context if resource == "*" else {**context, **tag}


def example(pattern: str) -> str:
    """A text that a pattern of IAM matches; in the account of `dev`."""
    other = settings_of("prod").aws.allowed_accounts[0]
    return pattern.replace("*", "x").replace("?", "0").replace(other, ACCOUNT)


def test_a_deployer_may_write_to_nothing_of_another_environment_in_its_account() -> None:
    """But for passing roles without a path, as an older release made them: IAM does not limit that by tags."""
    found = allowed("dev", own_requests("prod"))
    writes = [
        (name, arn) for name, arn, _ in found if not name.partition(":")[2].startswith(("Describe", "Get", "List"))
    ]
    assert {name for name, _ in writes} == {*COMMON, "iam:PassRole"}
    assert all(arn.count("/") == 1 for name, arn in writes if name == "iam:PassRole")


def test_only_an_environment_whose_stores_die_with_it_may_empty_them() -> None:
    account = settings_of("test").aws.allowed_accounts[0]
    assert is_allowed(statements("test"), "s3:DeleteObject", f"arn:aws:s3:::rtp-test-4711-checkpoints-{account}/x")
    assert not any("ecr:BatchDeleteImage" in one["Action"] for one in statements("prod"))


def test_the_command_writes_one_file_per_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.lifecycle.commands.deployer.record", lambda one: graph(one.environment.name))
    assert main(["deployer-policy", "--env", "dev", "--file", str(tmp_path / "policy.json")]) == 0
    policies = deployer_policies(settings_of("dev"), graph("dev"))
    written = sorted(tmp_path.iterdir())
    assert [json.loads(file.read_text()) for file in written] == [policy.document for policy in policies]
    assert f"--policy-name rtp-dev-deployer-1 --policy-document file://{written[0]}" in capsys.readouterr().out


def test_each_account_has_its_own_policies(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    second, shipped = "999988887777", settings_of("dev")
    shared = shipped.model_copy(update={"aws": shipped.aws.model_copy(update={"allowed_accounts": (ACCOUNT, second)})})
    monkeypatch.setattr("infra.lifecycle.commands.deployer.load_environment", lambda _: shared)
    assert main(["deployer-policy", "--env", "dev", "--account", second]) == 0
    found = [one for document in json.loads(capsys.readouterr().out).values() for one in document["Statement"]]
    assert is_allowed(found, "eks:CreateCluster", f"arn:aws:eks:{REGION}:{second}:cluster/rtp-dev", {})
    assert ACCOUNT not in json.dumps(found)
    assert main(["deployer-policy", "--env", "dev"]) == 2
    assert f"dev may be in several accounts: {ACCOUNT}, {second}" in capsys.readouterr().err
    assert main(["deployer-policy", "--env", "dev", "--account", "000000000000"]) == 3
    assert "AWS account 000000000000 may not hold environment dev" in capsys.readouterr().err


VPC_ARN = arn("ec2", "vpc/vpc-0a1b2c3d4e5f60718")
SHARED = arn("eks", "cluster/shared")
SYSTEM = "nodegroup/shared/system-us-east-1a-0a1b2c3/1"
STACK = stack_tag(settings_of("existing-cluster"))
SHARED_OURS = {"aws:ResourceTag/stack": STACK}
SHARED_NEW = {"aws:RequestTag/stack": STACK}


def test_what_the_platform_needs_of_an_existing_cluster_is_allowed() -> None:
    needed: list[Request] = [
        ("ec2:DescribeRouteTables", "*", HERE),
        ("ec2:DescribeVpcEndpoints", "*", HERE),
        ("ec2:CreateSecurityGroup", VPC_ARN, {}),
        ("eks:DescribeCluster", SHARED, {}),
        ("eks:ListNodegroups", SHARED, {}),
        ("eks:DescribeAddon", arn("eks", "addon/shared/vpc-cni/1"), {}),
        ("eks:DescribeNodegroup", arn("eks", "nodegroup/shared/theirs/1"), {}),
        ("eks:CreateNodegroup", SHARED, {}),
        ("eks:DescribeUpdate", SHARED, {}),
        ("ec2:DescribeSecurityGroupRules", "*", HERE),
        ("ec2:DescribeAvailabilityZones", "*", HERE),
        ("eks:DeleteNodegroup", arn("eks", SYSTEM), SHARED_OURS),
        ("eks:DeleteAccessEntry", arn("eks", "access-entry/shared/role/1"), SHARED_OURS),
        ("s3:CreateBucket", arn("s3", f"rtp-existing-cluster-checkpoints-{ACCOUNT}"), {}),
        ("ec2:DeleteNetworkInterface", ec2("network-interface"), {**HERE, **SHARED_OURS}),
        # A new part of the cluster is tagged.
        ("eks:TagResource", arn("eks", SYSTEM), SHARED_NEW),
        ("eks:TagResource", arn("eks", "addon/shared/aws-efs-csi-driver/1"), SHARED_NEW),
        ("eks:TagResource", arn("eks", f"access-entry/shared/role/{ACCOUNT}/platform-admin/1"), SHARED_NEW),
        ("eks:TagResource", arn("eks", "podidentityassociation/shared/a-1"), SHARED_NEW),
    ]
    assert allowed("existing-cluster", needed) == needed


def test_nothing_of_the_vpc_or_the_cluster_can_be_changed_or_deleted() -> None:
    owner = {"aws:ResourceTag/cluster.k8s.amazonaws.com/name": "shared"}
    theirs: list[Request] = [
        ("ec2:CreateSecurityGroup", VPC_ARN.replace("vpc-0a", "vpc-0b"), {}),
        ("ec2:DeleteVpc", VPC_ARN, SHARED_OURS),
        ("ec2:CreateSubnet", VPC_ARN, SHARED_OURS),
        ("ec2:CreateRoute", ec2("route-table"), SHARED_OURS),
        ("ec2:CreateTags", VPC_ARN, {**SHARED_NEW, "ec2:CreateAction": "CreateVpc"}),
        ("eks:CreateCluster", SHARED, {}),
        ("eks:DeleteCluster", SHARED, {}),
        ("eks:UpdateClusterVersion", SHARED, {}),
        ("eks:UpdateClusterConfig", SHARED, {}),
        ("eks:DeleteNodegroup", arn("eks", "nodegroup/shared/theirs/1"), {}),
        ("eks:DeleteNodegroup", arn("eks", "nodegroup/shared/theirs/1"), FOREIGN),
        ("eks:DeleteAddon", arn("eks", "addon/shared/vpc-cni/1"), {}),
        ("eks:UpdateAddon", arn("eks", "addon/shared/vpc-cni/1"), {}),
        ("eks:DeleteAccessEntry", arn("eks", "access-entry/shared/role/1"), {}),
        ("eks:CreateNodegroup", arn("eks", "cluster/rtp-existing-cluster"), {}),
        ("iam:PassRole", arn("iam", "role/cluster-1a2b3c4"), service("eks")),
        (
            "ec2:AuthorizeSecurityGroupIngress",
            ec2("security-group"),
            {"aws:ResourceTag/aws:eks:cluster-name": "shared"},
        ),
        ("ec2:DeleteNetworkInterface", ec2("network-interface"), {**HERE, **owner}),
        ("eks:TagResource", arn("eks", "nodegroup/shared/theirs/1"), SHARED_NEW),
        ("eks:TagResource", arn("eks", SYSTEM), {"aws:RequestTag/stack": "other"}),
        ("eks:TagResource", arn("eks", "addon/shared/vpc-cni/1"), SHARED_NEW),
        ("eks:TagResource", arn("eks", f"access-entry/shared/role/{ACCOUNT}/theirs/1"), SHARED_NEW),
    ]
    assert allowed("existing-cluster", theirs) == []


def test_a_deployer_in_an_existing_vpc_deletes_no_part_of_it_even_with_the_stacks_tag() -> None:
    tagged = {"aws:ResourceTag/stack": stack_tag(settings_of("existing-vpc"))}
    kinds = "Vpc", "Subnet", "NatGateway", "RouteTable"
    assert allowed("existing-vpc", [(f"ec2:Delete{kind}", VPC_ARN, tagged) for kind in kinds]) == []
    assert is_allowed(statements("existing-vpc"), "eks:DeleteCluster", arn("eks", "cluster/rtp-existing-vpc"), {})
    interface = "ec2:DeleteNetworkInterface", ec2("network-interface")
    owners = ("rtp-existing-vpc", "other")
    of = [{**HERE, "aws:ResourceTag/cluster.k8s.amazonaws.com/name": owner} for owner in owners]
    assert allowed("existing-vpc", [(*interface, context) for context in (*of, HERE)]) == [(*interface, of[0])]


def test_rules_of_the_clusters_group_are_allowed_where_the_settings_have_clients() -> None:
    policies = deployer_policies(with_changes("existing-cluster", UNUSUAL), unusual_cluster())
    found = [one for policy in policies for one in policy.document["Statement"]]
    action, group = "ec2:AuthorizeSecurityGroupIngress", ec2("security-group")
    assert is_allowed(found, action, group, {"aws:ResourceTag/aws:eks:cluster-name": "shared"})
    assert not is_allowed(found, action, group, {"aws:ResourceTag/aws:eks:cluster-name": "other"})

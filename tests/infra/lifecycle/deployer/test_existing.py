"""The deployer of an environment in an existing VPC, or on an existing cluster: its own parts, and nothing of what was there."""

from __future__ import annotations

import pytest

from infra.lifecycle.deployer.policy import deployer_policies
from infra.spec.names import stack_tag
from tests.infra.aws.graphs import settings_of
from tests.infra.aws.test_existing import UNUSUAL, unusual_cluster
from tests.infra.lifecycle.deployer.decisions import is_allowed
from tests.infra.lifecycle.deployer.test_policy import ACCOUNT, FOREIGN, REGION, ec2, statements
from tests.infra.spec.test_existing import with_changes

VPC_ARN = f"arn:aws:ec2:{REGION}:{ACCOUNT}:vpc/vpc-0a1b2c3d4e5f60718"
EKS = f"arn:aws:eks:{REGION}:{ACCOUNT}"
OURS = {"aws:ResourceTag/stack": stack_tag(settings_of("existing-cluster"))}
OUR_TAG = {"aws:RequestTag/stack": stack_tag(settings_of("existing-cluster"))}
HERE = {"aws:RequestedRegion": REGION}


@pytest.mark.parametrize(
    ("action", "resource", "context"),
    [
        ("ec2:DescribeRouteTables", "*", HERE),
        ("ec2:DescribeVpcEndpoints", "*", HERE),
        ("ec2:CreateSecurityGroup", VPC_ARN, {}),
        ("eks:DescribeCluster", f"{EKS}:cluster/shared", {}),
        ("eks:ListNodegroups", f"{EKS}:cluster/shared", {}),
        ("eks:DescribeAddon", f"{EKS}:addon/shared/vpc-cni/1", {}),
        ("eks:DescribeNodegroup", f"{EKS}:nodegroup/shared/theirs/1", {}),
        ("eks:CreateNodegroup", f"{EKS}:cluster/shared", {}),
        ("eks:DescribeUpdate", f"{EKS}:cluster/shared", {}),
        ("ec2:DescribeSecurityGroupRules", "*", HERE),
        ("ec2:DescribeAvailabilityZones", "*", HERE),
        ("eks:DeleteNodegroup", f"{EKS}:nodegroup/shared/system-us-east-1a-1/1", OURS),
        ("eks:DeleteAccessEntry", f"{EKS}:access-entry/shared/role/1", OURS),
        ("s3:CreateBucket", f"arn:aws:s3:::rtp-existing-cluster-checkpoints-{ACCOUNT}", {}),
    ],
)
def test_what_the_platform_needs_of_an_existing_cluster_is_allowed(
    action: str, resource: str, context: dict[str, str]
) -> None:
    assert is_allowed(statements("existing-cluster"), action, resource, context)


@pytest.mark.parametrize(
    ("action", "resource", "context"),
    [
        ("ec2:CreateSecurityGroup", VPC_ARN.replace("vpc-0a", "vpc-0b"), {}),
        ("ec2:DeleteVpc", VPC_ARN, OURS),
        ("ec2:CreateSubnet", VPC_ARN, OURS),
        ("ec2:CreateRoute", ec2("route-table"), OURS),
        (
            "ec2:CreateTags",
            VPC_ARN,
            {"aws:RequestTag/stack": OURS["aws:ResourceTag/stack"], "ec2:CreateAction": "CreateVpc"},
        ),
        ("eks:CreateCluster", f"{EKS}:cluster/shared", {}),
        ("eks:DeleteCluster", f"{EKS}:cluster/shared", {}),
        ("eks:UpdateClusterVersion", f"{EKS}:cluster/shared", {}),
        ("eks:UpdateClusterConfig", f"{EKS}:cluster/shared", {}),
        ("eks:DeleteNodegroup", f"{EKS}:nodegroup/shared/theirs/1", {}),
        ("eks:DeleteNodegroup", f"{EKS}:nodegroup/shared/theirs/1", FOREIGN),
        ("eks:DeleteAddon", f"{EKS}:addon/shared/vpc-cni/1", {}),
        ("eks:UpdateAddon", f"{EKS}:addon/shared/vpc-cni/1", {}),
        ("eks:DeleteAccessEntry", f"{EKS}:access-entry/shared/role/1", {}),
        ("eks:CreateNodegroup", f"{EKS}:cluster/rtp-existing-cluster", {}),
        ("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/cluster-1a2b3c4", {"iam:PassedToService": "eks.amazonaws.com"}),
        (
            "ec2:AuthorizeSecurityGroupIngress",
            ec2("security-group"),
            {"aws:ResourceTag/aws:eks:cluster-name": "shared"},
        ),
    ],
)
def test_nothing_of_the_vpc_or_the_cluster_can_be_changed_or_deleted(
    action: str, resource: str, context: dict[str, str]
) -> None:
    assert not is_allowed(statements("existing-cluster"), action, resource, context)


@pytest.mark.parametrize(
    ("part", "tag", "allowed"),
    [
        ("nodegroup/shared/system-us-east-1a-0a1b2c3/1", OUR_TAG, True),
        ("nodegroup/shared/theirs/1", OUR_TAG, False),
        ("nodegroup/shared/system-us-east-1a-0a1b2c3/1", {"aws:RequestTag/stack": "other"}, False),
        ("addon/shared/aws-efs-csi-driver/1", OUR_TAG, True),
        ("addon/shared/vpc-cni/1", OUR_TAG, False),
        (f"access-entry/shared/role/{ACCOUNT}/platform-admin/1", OUR_TAG, True),
        (f"access-entry/shared/role/{ACCOUNT}/theirs/1", OUR_TAG, False),
        ("podidentityassociation/shared/a-1", OUR_TAG, True),
    ],
)
def test_a_new_part_of_the_cluster_is_tagged_and_no_part_of_others(
    part: str,
    tag: dict[str, str],
    allowed: bool,  # noqa: FBT001
) -> None:
    assert is_allowed(statements("existing-cluster"), "eks:TagResource", f"{EKS}:{part}", tag) is allowed


@pytest.mark.parametrize(
    ("environment", "context", "allowed"),
    [
        ("existing-cluster", OURS, True),
        ("existing-cluster", {"aws:ResourceTag/cluster.k8s.amazonaws.com/name": "shared"}, False),
        ("existing-vpc", {"aws:ResourceTag/cluster.k8s.amazonaws.com/name": "rtp-existing-vpc"}, True),
        ("existing-vpc", {"aws:ResourceTag/cluster.k8s.amazonaws.com/name": "other"}, False),
        ("existing-vpc", {}, False),
    ],
)
def test_a_teardown_deletes_no_network_interface_of_others(
    environment: str,
    context: dict[str, str],
    allowed: bool,  # noqa: FBT001
) -> None:
    request = "ec2:DeleteNetworkInterface", ec2("network-interface"), {**HERE, **context}
    assert is_allowed(statements(environment), *request) is allowed


@pytest.mark.parametrize(
    "action", ["ec2:DeleteVpc", "ec2:DeleteSubnet", "ec2:DeleteNatGateway", "ec2:DeleteRouteTable"]
)
def test_a_deployer_in_an_existing_vpc_deletes_no_part_of_it_even_with_the_stacks_tag(action: str) -> None:
    tagged = {"aws:ResourceTag/stack": stack_tag(settings_of("existing-vpc"))}
    assert not is_allowed(statements("existing-vpc"), action, VPC_ARN, tagged)
    assert is_allowed(statements("existing-vpc"), "eks:DeleteCluster", f"{EKS}:cluster/rtp-existing-vpc", {})


def test_rules_of_the_clusters_group_are_allowed_where_the_settings_have_clients() -> None:
    policies = deployer_policies(with_changes("existing-cluster", UNUSUAL), unusual_cluster())
    found = [one for policy in policies for one in policy.document["Statement"]]
    action, group = "ec2:AuthorizeSecurityGroupIngress", ec2("security-group")
    assert is_allowed(found, action, group, {"aws:ResourceTag/aws:eks:cluster-name": "shared"})
    assert not is_allowed(found, action, group, {"aws:ResourceTag/aws:eks:cluster-name": "other"})

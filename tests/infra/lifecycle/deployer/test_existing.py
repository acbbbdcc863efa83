"""The deployer of an environment in an existing VPC, or on an existing cluster: its own parts, and nothing of what was there."""

from __future__ import annotations

from infra.lifecycle.deployer.policy import deployer_policies
from infra.spec.names import stack_tag
from tests.infra.aws.graphs import settings_of
from tests.infra.aws.test_existing import UNUSUAL, unusual_cluster
from tests.infra.lifecycle.deployer.decisions import is_allowed
from tests.infra.lifecycle.deployer.test_policy import (
    ACCOUNT,
    FOREIGN,
    HERE,
    Request,
    allowed,
    arn,
    ec2,
    service,
    statements,
)
from tests.infra.spec.test_existing import with_changes

VPC_ARN = arn("ec2", "vpc/vpc-0a1b2c3d4e5f60718")
SHARED = arn("eks", "cluster/shared")
SYSTEM = "nodegroup/shared/system-us-east-1a-1/1"
STACK = stack_tag(settings_of("existing-cluster"))
OURS = {"aws:ResourceTag/stack": STACK}
OUR_TAG = {"aws:RequestTag/stack": STACK}


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
        ("eks:DeleteNodegroup", arn("eks", SYSTEM), OURS),
        ("eks:DeleteAccessEntry", arn("eks", "access-entry/shared/role/1"), OURS),
        ("s3:CreateBucket", arn("s3", f"rtp-existing-cluster-checkpoints-{ACCOUNT}"), {}),
        ("ec2:DeleteNetworkInterface", ec2("network-interface"), {**HERE, **OURS}),
        # A new part of the cluster is tagged.
        ("eks:TagResource", arn("eks", SYSTEM), OUR_TAG),
        ("eks:TagResource", arn("eks", "addon/shared/aws-efs-csi-driver/1"), OUR_TAG),
        ("eks:TagResource", arn("eks", f"access-entry/shared/role/{ACCOUNT}/platform-admin/1"), OUR_TAG),
        ("eks:TagResource", arn("eks", "podidentityassociation/shared/a-1"), OUR_TAG),
    ]
    assert allowed("existing-cluster", needed) == needed


def test_nothing_of_the_vpc_or_the_cluster_can_be_changed_or_deleted() -> None:
    owner = {"aws:ResourceTag/cluster.k8s.amazonaws.com/name": "shared"}
    theirs: list[Request] = [
        ("ec2:CreateSecurityGroup", VPC_ARN.replace("vpc-0a", "vpc-0b"), {}),
        ("ec2:DeleteVpc", VPC_ARN, OURS),
        ("ec2:CreateSubnet", VPC_ARN, OURS),
        ("ec2:CreateRoute", ec2("route-table"), OURS),
        ("ec2:CreateTags", VPC_ARN, {**OUR_TAG, "ec2:CreateAction": "CreateVpc"}),
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
        ("eks:TagResource", arn("eks", "nodegroup/shared/theirs/1"), OUR_TAG),
        ("eks:TagResource", arn("eks", SYSTEM), {"aws:RequestTag/stack": "other"}),
        ("eks:TagResource", arn("eks", "addon/shared/vpc-cni/1"), OUR_TAG),
        ("eks:TagResource", arn("eks", f"access-entry/shared/role/{ACCOUNT}/theirs/1"), OUR_TAG),
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

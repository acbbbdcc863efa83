"""Permissions on a VPC and a cluster that the stack uses and does not make: to read them, and to add the stack's own parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from infra.aws.iam import Condition, Statement
from infra.lifecycle.deployer.grants import Grant, Scope, actions, physical_name, tagged_new
from infra.preview.recording import Recording
from infra.spec.names import cluster_name, stack_tag
from infra.spec.settings import StackSettings

_SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
_INGRESS_RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
_NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
_ADDON = "aws:eks/addon:Addon"
_ACCESS_ENTRY = "aws:eks/accessEntry:AccessEntry"
_IN_CLUSTER = "/{cluster}/*"

READ_VPC = actions("ec2", "DescribeVpcs DescribeVpcAttribute DescribeSubnets DescribeRouteTables DescribeVpcEndpoints")
"""What the preflight asks about an existing VPC; EC2's descriptions have no resource-level permissions."""


def existing_statements(settings: StackSettings, recording: Recording, *, account: str) -> Iterator[Statement]:
    """Statements that an environment needs besides those of its resources.

    Args:
        settings: the environment.
        recording: its recorded graph.
        account: its AWS account.
    """
    region = settings.aws.region
    if settings.network.existing is not None:
        limits: Condition = {"StringEquals": {"aws:RequestedRegion": region}}
        yield Statement(sid="ReadExistingVpc", actions=READ_VPC, resources=("*",), condition=limits)
        vpc = f"arn:aws:ec2:{region}:{account}:vpc/{settings.network.existing.vpc_id}"
        yield Statement(sid="UseExistingVpc", actions=("ec2:CreateSecurityGroup",), resources=(vpc,))
    if settings.cluster.existing is not None:
        yield from _reads_of_cluster(settings, account)
        yield _tags_of_new_parts(settings, recording, account)
    if _changes_the_cluster_group(recording):
        yield _cluster_group(settings, account)


def own_parts_only(grant: Grant) -> Grant:
    """The grant, on what has the stack's tag if it is about parts of a cluster: others have parts there too."""
    is_inside = all(_IN_CLUSTER in template for template in grant.resources)
    return replace(grant, scope=Scope.OURS) if is_inside else grant


def _reads_of_cluster(settings: StackSettings, account: str) -> Iterator[Statement]:
    name, region = cluster_name(settings), settings.aws.region
    cluster = f"arn:aws:eks:{region}:{account}:cluster/{name}"
    # EKS authorises a look at an update of a node group or an add-on for the cluster too.
    of_cluster = (
        "DescribeCluster DescribeUpdate ListAddons ListNodegroups ListAccessEntries ListPodIdentityAssociations"
    )
    yield Statement(sid="ReadExistingCluster", actions=actions("eks", of_cluster), resources=(cluster,))
    kinds = ("addon", "nodegroup", "access-entry", "podidentityassociation")
    parts = [f"arn:aws:eks:{region}:{account}:{kind}/{name}/*" for kind in kinds]
    of_parts = "DescribeAddon DescribeNodegroup DescribeAccessEntry DescribePodIdentityAssociation"
    yield Statement(sid="ReadPartsOfExistingCluster", actions=actions("eks", of_parts), resources=parts)


def _tags_of_new_parts(settings: StackSettings, recording: Recording, account: str) -> Statement:
    """EKS asks for this when a part is made with tags, and the part has none then.

    Whoever may tag a part of others with the stack's tag could change it, so the names of the stack's parts limit it. Associations
    have no names, but IDs that EKS invents.
    """
    cluster = cluster_name(settings)
    parts = [f"nodegroup/{cluster}/{physical_name(one)}/*" for one in recording.of_type(_NODE_GROUP)]
    parts += [f"addon/{cluster}/{one.properties['addonName']}/*" for one in recording.of_type(_ADDON)]
    principals = [str(one.properties["principalArn"]) for one in recording.of_type(_ACCESS_ENTRY)]
    parts += [f"access-entry/{cluster}/role/{account}/*{arn.rpartition('/')[2]}/*" for arn in principals]
    parts.append(f"podidentityassociation/{cluster}/*")
    arns = [f"arn:aws:eks:{settings.aws.region}:{account}:{part}" for part in sorted(parts)]
    tagged = tagged_new(stack_tag(settings))
    return Statement(sid="TagNewParts", actions=("eks:TagResource",), resources=tuple(arns), condition=tagged)


def _changes_the_cluster_group(recording: Recording) -> bool:
    """Whether the stack adds rules to a security group that is not its own: that of the cluster, which EKS makes."""
    own = {one.urn for one in recording.of_type(_SECURITY_GROUP)}
    rules = recording.of_type(_INGRESS_RULE)
    return any(not own & set(rule.property_dependencies.get("securityGroupId", ())) for rule in rules)


def _cluster_group(settings: StackSettings, account: str) -> Statement:
    """EKS tags the group with the cluster's name, and gives it no tag of the stack."""
    group = f"arn:aws:ec2:{settings.aws.region}:{account}:security-group/*"
    names = "AuthorizeSecurityGroupIngress ModifySecurityGroupRules RevokeSecurityGroupIngress"
    tagged = {"StringEquals": {"aws:ResourceTag/aws:eks:cluster-name": cluster_name(settings)}}
    return Statement(sid="ClusterGroup", actions=actions("ec2", names), resources=(group,), condition=tagged)

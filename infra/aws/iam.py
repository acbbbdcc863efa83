"""IAM policies as data, and roles of services and of pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pulumi
import pulumi_aws as aws

from infra.spec.names import ServiceAccount

Condition = Mapping[str, Mapping[str, Any]]
"""Operator, then key, then values; a value may be an output."""

AWS_MANAGED_POLICIES: Mapping[str, str] = {
    "AmazonEKSClusterPolicy": "what EKS's control plane does in the account; EKS grows it with its versions",
    "AmazonEKSWorkerNodePolicy": "how a node joins a cluster and how its pods get Pod Identity credentials",
    "AmazonEKS_CNI_Policy": "what the VPC CNI add-on does to network interfaces; grows with the add-on",
    "AmazonEC2ContainerRegistryPullOnly": "pulling images, and nothing else of ECR",
    "AmazonSSMManagedInstanceCore": "a shell on a node without an open port and without keys",
    "service-role/AmazonEBSCSIDriverPolicy": "volumes that the driver itself tagged; grows with the add-on",
    "service-role/AmazonRDSEnhancedMonitoringRole": "writing RDS's operating system metrics",
}
"""AWS's own policies that roles of this stack may carry, each with its reason; every other permission is written out."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement of a policy.

    Attributes:
        sid: what it is for, in camel case.
        actions: IAM actions.
        resources: ARNs; empty in a trust policy, where the role is the resource.
        principal: who, in a policy of a resource: `"*"` or values by kind (`Service`, `AWS`); None in a role's policy.
        condition: what narrows it.
        effect: Allow or Deny.
    """

    sid: str
    actions: Sequence[str]
    resources: Sequence[pulumi.Input[str]] = ()
    principal: Literal["*"] | Mapping[str, Any] | None = None
    condition: Condition | None = None
    effect: Literal["Allow", "Deny"] = "Allow"

    def document(self) -> dict[str, Any]:
        """The statement in IAM's spelling."""
        optional = {
            "Principal": self.principal,
            "Resource": list(self.resources) or None,
            "Condition": self.condition,
        }
        return {
            "Sid": self.sid,
            "Effect": self.effect,
            "Action": list(self.actions),
            **{key: value for key, value in optional.items() if value is not None},
        }


def policy(statements: Iterable[Statement]) -> pulumi.Output[str]:
    """A policy document as JSON; unknown in a preview if any of its values is."""
    return pulumi.Output.json_dumps(
        {"Version": "2012-10-17", "Statement": [statement.document() for statement in statements]}
    )


def trust_service(service: str, *, account: pulumi.Input[str]) -> Statement:
    """Let a service take the role, on behalf of this account only (IAM user guide, "The confused deputy problem")."""
    return Statement(
        sid="ServiceOfThisAccount",
        actions=("sts:AssumeRole",),
        principal={"Service": service},
        condition={"StringEquals": {"aws:SourceAccount": account}},
    )


def trust_nodes() -> Statement:
    """Let EC2 hand the role to instances; the confused deputy cannot arise, EC2 takes it for instance profiles only."""
    return Statement(sid="Instances", actions=("sts:AssumeRole",), principal={"Service": "ec2.amazonaws.com"})


def trust_pods(accounts: Sequence[ServiceAccount], *, cluster_arn: pulumi.Input[str]) -> Statement:
    """Let pods of this cluster take the role, in these namespaces under these service accounts.

    Pod Identity sends cluster, namespace and service account as session tags (EKS user guide, "Create IAM role with
    trust policy required by EKS Pod Identity").
    """
    return Statement(
        sid="PodsOfTheCluster",
        actions=("sts:AssumeRole", "sts:TagSession"),
        principal={"Service": "pods.eks.amazonaws.com"},
        condition={
            "StringEquals": {
                "aws:RequestTag/eks-cluster-arn": cluster_arn,
                "aws:RequestTag/kubernetes-namespace": sorted({account.namespace for account in accounts}),
                "aws:RequestTag/kubernetes-service-account": sorted({account.name for account in accounts}),
            }
        },
    )


@dataclass(frozen=True, kw_only=True)
class RoleArgs:
    """What a role is.

    Attributes:
        description: what the role is for.
        trust: who may take it.
        statements: what it may do.
        managed: names of AWS's own policies it carries; keys of `AWS_MANAGED_POLICIES`.
    """

    description: str
    trust: Statement
    statements: Sequence[Statement] = ()
    managed: Sequence[str] = ()


class Role(pulumi.ComponentResource):
    """A role with all its permissions: whatever depends on it has to wait for, and is deleted before, them too.

    Attributes:
        arn: ARN of the role.
        name: physical name of the role.
    """

    arn: pulumi.Output[str]
    name: pulumi.Output[str]

    def __init__(self, name: str, args: RoleArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:Role", name, None, opts)
        below = pulumi.ResourceOptions(parent=self)
        role = aws.iam.Role(
            name,
            description=args.description,
            assume_role_policy=policy([args.trust]),
            force_detach_policies=True,
            opts=below,
        )
        if args.statements:
            aws.iam.RolePolicy(name, role=role.name, policy=policy(args.statements), opts=below)
        for managed in args.managed:
            assert managed in AWS_MANAGED_POLICIES, f"{managed} is on no list"
            aws.iam.RolePolicyAttachment(
                f"{name}-{managed.rpartition('/')[2]}",
                role=role.name,
                policy_arn=f"arn:aws:iam::aws:policy/{managed}",
                opts=below,
            )
        self.arn, self.name = role.arn, role.name
        self.register_outputs({"arn": self.arn})


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Where the roles work.

    Attributes:
        cluster_name: name of the EKS cluster, as text: a role need not wait for the cluster.
        account: AWS account.
        region: AWS region.
    """

    cluster_name: str
    account: pulumi.Input[str]
    region: str

    def arn(self, service: str, resource: str) -> pulumi.Output[str]:
        """The ARN of something in this account and region."""
        return pulumi.Output.concat(f"arn:aws:{service}:{self.region}:", self.account, f":{resource}")

    @property
    def cluster_arn(self) -> pulumi.Output[str]:
        """The cluster's ARN."""
        return self.arn("eks", f"cluster/{self.cluster_name}")

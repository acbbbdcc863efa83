"""IAM policy documents, trust policies and roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pulumi
import pulumi_aws as aws

from infra.spec.names import ServiceAccount, role_path

Condition = Mapping[str, Mapping[str, Any]]
"""Values by condition key by operator; a value may be an output."""

AWS_MANAGED_POLICIES: Mapping[str, str] = {
    "AmazonEKSClusterPolicy": "the control plane's calls in the account, which change with EKS's versions",
    "AmazonEKSWorkerNodePolicy": "joining the cluster, and Pod Identity credentials for pods",
    "AmazonEKS_CNI_Policy": "the VPC CNI's network interfaces, which change with the add-on's versions",
    "AmazonEC2ContainerRegistryPullOnly": "pulling images",
    "AmazonSSMManagedInstanceCore": "a shell on a node without an open port or an SSH key",
    "service-role/AmazonEBSCSIDriverPolicy": "volumes that the driver has tagged; changes with the add-on's versions",
    "service-role/AmazonRDSEnhancedMonitoringRole": "publishing RDS's operating system metrics",
}
"""AWS managed policies that the stack's roles may use, with the reason; all other permissions are inline policies."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement of a policy.

    Attributes:
        sid: its purpose, in camel case.
        actions: IAM actions.
        resources: ARNs; empty in a trust policy, where the role is the resource.
        principal: `"*"` or values by type (`Service`, `AWS`) in a resource-based policy; None in an identity-based one.
        condition: condition block.
        effect: Allow or Deny.
    """

    sid: str
    actions: Sequence[str]
    resources: Sequence[pulumi.Input[str]] = ()
    principal: Literal["*"] | Mapping[str, Any] | None = None
    condition: Condition | None = None
    effect: Literal["Allow", "Deny"] = "Allow"

    def document(self) -> dict[str, Any]:
        """The statement as an IAM JSON element."""
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


def policy_document(statements: Iterable[Statement]) -> pulumi.Output[str]:
    """A policy document as JSON; unknown in a preview if one of its values is unknown."""
    return pulumi.Output.json_dumps(
        {"Version": "2012-10-17", "Statement": [statement.document() for statement in statements]}
    )


def deny_without_tls(action: str, resources: Sequence[pulumi.Input[str]]) -> Statement:
    """Deny every principal requests without TLS."""
    return Statement(
        sid="TlsOnly",
        effect="Deny",
        principal="*",
        actions=(action,),
        resources=resources,
        condition={"Bool": {"aws:SecureTransport": "false"}},
    )


def trust_service(service: str, *, account: pulumi.Input[str]) -> Statement:
    """Let a service assume the role on behalf of this account only (IAM user guide, "The confused deputy problem")."""
    return Statement(
        sid="ServiceOfThisAccount",
        actions=("sts:AssumeRole",),
        principal={"Service": service},
        condition={"StringEquals": {"aws:SourceAccount": account}},
    )


def trust_nodes() -> Statement:
    """Let EC2 instances assume the role; instance profiles cannot cross accounts, so no condition is needed."""
    return Statement(sid="Instances", actions=("sts:AssumeRole",), principal={"Service": "ec2.amazonaws.com"})


def trust_pods(accounts: Sequence[ServiceAccount], *, cluster_arn: pulumi.Input[str]) -> Statement:
    """Let pods of this cluster assume the role, in these namespaces with these service accounts.

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
    """Inputs of `Role`.

    Attributes:
        description: purpose of the role.
        trust: statement of the trust policy.
        statements: statements of the inline policy.
        managed: names of AWS managed policies to attach; keys of `AWS_MANAGED_POLICIES`.
    """

    description: str
    trust: Statement
    statements: Sequence[Statement] = ()
    managed: Sequence[str] = ()


class Role(pulumi.ComponentResource):
    """A role with its policies, so that a resource that depends on the role depends on its permissions too.

    Attributes:
        arn: ARN of the role.
        name: physical name of the role.
    """

    arn: pulumi.Output[str]
    name: pulumi.Output[str]

    def __init__(self, name: str, args: RoleArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:Role", name, None, opts)
        child_opts = pulumi.ResourceOptions(parent=self)
        role = aws.iam.Role(
            name,
            # The deployer of one environment may not pass the roles of another, which only their ARNs tell apart: IAM does not limit
            # `iam:PassRole` by tags. A role that has no path yet keeps none, because another path would replace it.
            path=role_path(pulumi.get_stack()),
            description=args.description,
            assume_role_policy=policy_document([args.trust]),
            force_detach_policies=True,
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=["path"]),
        )
        if args.statements:
            aws.iam.RolePolicy(name, role=role.name, policy=policy_document(args.statements), opts=child_opts)
        for managed in args.managed:
            assert managed in AWS_MANAGED_POLICIES, f"{managed} is not in AWS_MANAGED_POLICIES"
            aws.iam.RolePolicyAttachment(
                f"{name}-{managed.rpartition('/')[2]}",
                role=role.name,
                policy_arn=f"arn:aws:iam::aws:policy/{managed}",
                opts=child_opts,
            )
        self.arn, self.name = role.arn, role.name
        self.register_outputs({"arn": self.arn})


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Cluster, account and region that permissions are limited to.

    Attributes:
        cluster_name: name of the EKS cluster as text, so that a role does not depend on the cluster.
        account: AWS account.
        region: AWS region.
    """

    cluster_name: str
    account: pulumi.Input[str]
    region: str

    def arn(self, service: str, resource: str) -> pulumi.Output[str]:
        """The ARN of a resource in this account and region."""
        return pulumi.Output.concat(f"arn:aws:{service}:{self.region}:", self.account, f":{resource}")

    @property
    def cluster_arn(self) -> pulumi.Output[str]:
        """ARN of the EKS cluster."""
        return self.arn("eks", f"cluster/{self.cluster_name}")

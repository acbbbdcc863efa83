"""The EKS control plane: its role, its logs, who may reach it and who may do what in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.aws.context import BuildContext
from infra.aws.encryption import Encryption
from infra.aws.iam import Role, RoleArgs, Statement, trust_service
from infra.aws.logs import make_log_group
from infra.aws.network import Network
from infra.spec import names
from infra.spec.settings.stack import StackSettings

_CLUSTER_ADMIN = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"


@dataclass(frozen=True, kw_only=True)
class Access:
    """What the bearers of an IAM role may do in the cluster.

    Attributes:
        principal_arn: the IAM role.
        is_admin: everything.
        groups: Kubernetes groups they belong to, which RBAC gives rights to.
    """

    principal_arn: str
    is_admin: bool
    groups: Sequence[str]

    @property
    def name(self) -> str:
        """Path and name of the role, without the account: the same in every environment."""
        return self.principal_arn.partition(":role/")[2]


@dataclass(frozen=True, kw_only=True)
class ClusterArgs:
    """The control plane's shape.

    Attributes:
        name: name of the cluster.
        kubernetes: minor, e.g. 1.35.
        support: STANDARD or EXTENDED.
        account: AWS account.
        subnet_ids: subnets of at least two zones, for the control plane's network interfaces.
        public_cidrs: ranges that reach the API server from the internet; empty has no public endpoint.
        service_cidr: addresses of Kubernetes services.
        logs: kinds of control-plane logs.
        log_days: their retention.
        logs_key_arn: KMS key of the logs.
        secrets_key_arn: KMS key of the envelope encryption.
        has_deletion_protection: EKS refuses to delete the cluster.
        access: who may do what.
    """

    name: str
    kubernetes: str
    support: str
    account: pulumi.Input[str]
    subnet_ids: Sequence[pulumi.Input[str]]
    public_cidrs: Sequence[str]
    service_cidr: str
    logs: Sequence[str]
    log_days: int
    logs_key_arn: pulumi.Input[str]
    secrets_key_arn: pulumi.Input[str]
    has_deletion_protection: bool
    access: Sequence[Access]


class Cluster(pulumi.ComponentResource):
    """The control plane.

    Who deploys has to be among `ClusterArgs.access`: creating a cluster makes nobody an administrator here, because
    that would be whoever ran the first deployment, for ever, and listed nowhere.

    Attributes:
        name: name of the cluster; known only when the cluster exists, so that what uses it waits.
        endpoint: URL of the API server.
        certificate_authority: CA certificate, base64.
        security_group_id: EKS's own security group, which control plane and nodes share.
    """

    name: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    certificate_authority: pulumi.Output[str]
    security_group_id: pulumi.Output[str]

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:Cluster", name, None, opts)
        self._args = args
        self._below = pulumi.ResourceOptions(parent=self)
        cluster = self._make_cluster()
        self.name, self.endpoint = cluster.name, cluster.endpoint
        self.certificate_authority = cluster.certificate_authority.data.apply(_present)
        self.security_group_id = cluster.vpc_config.cluster_security_group_id.apply(_present)
        for access in args.access:
            self._grant(access)
        self.register_outputs({"name": self.name, "endpoint": self.endpoint})

    def _make_role(self) -> Role:
        use_key = Statement(
            sid="EncryptSecrets",
            actions=("kms:Encrypt", "kms:Decrypt", "kms:ListGrants", "kms:DescribeKey"),
            resources=(self._args.secrets_key_arn,),
        )
        return Role(
            "cluster",
            RoleArgs(
                description="The EKS control plane",
                trust=trust_service("eks.amazonaws.com", account=self._args.account),
                statements=(use_key,),
                managed=("AmazonEKSClusterPolicy",),
            ),
            self._below,
        )

    def _make_cluster(self) -> aws.eks.Cluster:
        args, role = self._args, self._make_role()
        logs = make_log_group(
            "cluster", group=f"/aws/eks/{args.name}/cluster", days=args.log_days, key=args.logs_key_arn, parent=self
        )
        return aws.eks.Cluster(
            "cluster",
            name=args.name,
            version=args.kubernetes,
            role_arn=role.arn,
            vpc_config=aws.eks.ClusterVpcConfigArgs(
                subnet_ids=list(args.subnet_ids),
                endpoint_private_access=True,
                endpoint_public_access=bool(args.public_cidrs),
                public_access_cidrs=list(args.public_cidrs) or None,
            ),
            kubernetes_network_config=aws.eks.ClusterKubernetesNetworkConfigArgs(
                ip_family="ipv4", service_ipv4_cidr=args.service_cidr
            ),
            access_config=aws.eks.ClusterAccessConfigArgs(
                authentication_mode="API", bootstrap_cluster_creator_admin_permissions=False
            ),
            encryption_config=aws.eks.ClusterEncryptionConfigArgs(
                provider=aws.eks.ClusterEncryptionConfigProviderArgs(key_arn=args.secrets_key_arn),
                resources=["secrets"],
            ),
            enabled_cluster_log_types=list(args.logs),
            upgrade_policy=aws.eks.ClusterUpgradePolicyArgs(support_type=args.support),
            # The add-ons are ours, at the release's versions; EKS would install its newest beside them.
            bootstrap_self_managed_addons=False,
            deletion_protection=args.has_deletion_protection,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[role, logs]),
        )

    def _grant(self, access: Access) -> None:
        entry = aws.eks.AccessEntry(
            access.name,
            cluster_name=self.name,
            principal_arn=access.principal_arn,
            type="STANDARD",
            kubernetes_groups=list(access.groups),
            opts=self._below,
        )
        if access.is_admin:
            aws.eks.AccessPolicyAssociation(
                access.name,
                cluster_name=self.name,
                principal_arn=entry.principal_arn,
                policy_arn=_CLUSTER_ADMIN,
                access_scope=aws.eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
                opts=self._below,
            )


def _present(value: str | None) -> str:
    assert value is not None, "EKS sets it on every cluster"
    return value


def make_cluster(context: BuildContext, encryption: Encryption, network: Network) -> Cluster:
    """EKS's control plane and who may reach it."""
    cluster = context.settings.cluster
    args = ClusterArgs(
        name=context.cluster_name,
        kubernetes=context.kubernetes,
        support=cluster.support.upper(),
        account=context.account,
        subnet_ids=list(network.private_subnet_ids.values()),
        public_cidrs=[str(cidr) for cidr in cluster.public_cidrs],
        service_cidr=str(context.settings.network.service_cidr),
        logs=cluster.logs,
        log_days=cluster.log_days,
        logs_key_arn=encryption.keys["logs"],
        secrets_key_arn=encryption.keys["cluster"],
        has_deletion_protection=context.protection.deletion_protection,
        access=access_of(context.settings),
    )
    return Cluster("cluster", args, context.top)


def access_of(settings: StackSettings) -> Sequence[Access]:
    """Who may do what in the cluster: one entry per IAM role, however often the settings name it."""
    admins = dict.fromkeys(settings.cluster.admin_roles)
    submitters = dict.fromkeys(role for team in settings.teams for role in team.roles)
    return [
        Access(
            principal_arn=role,
            is_admin=role in admins,
            groups=[names.team_group(team.name) for team in settings.teams if role in team.roles],
        )
        for role in admins | submitters
    ]

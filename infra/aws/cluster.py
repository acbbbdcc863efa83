"""The EKS control plane: IAM role, logs, endpoint access and access entries."""

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
class AccessEntry:
    """Kubernetes permissions of an IAM role.

    Attributes:
        principal_arn: the IAM role.
        is_admin: whether the role is a cluster admin.
        groups: Kubernetes groups of the role, which RBAC bindings refer to.
    """

    principal_arn: str
    is_admin: bool
    groups: Sequence[str]

    @property
    def name(self) -> str:
        """Path and name of the role, without the account, which differs between environments."""
        return self.principal_arn.partition(":role/")[2]


@dataclass(frozen=True, kw_only=True)
class ClusterArgs:
    """Inputs of `Cluster`.

    Attributes:
        name: name of the cluster.
        kubernetes: minor version, e.g. 1.35.
        support: upgrade policy, STANDARD or EXTENDED.
        account: AWS account.
        subnet_ids: subnets of at least two zones, for the control plane's network interfaces.
        public_cidrs: ranges that may reach the public endpoint; empty disables it.
        client_cidrs: ranges outside the VPC that may reach the private endpoint.
        client_security_groups: security groups of peered VPCs whose members may reach the private endpoint.
        service_cidr: range of the Kubernetes services.
        logs: enabled control plane log types.
        log_days: log retention in days.
        logs_key_arn: KMS key of the logs.
        secrets_key_arn: KMS key of the envelope encryption of secrets.
        has_deletion_protection: whether EKS refuses to delete the cluster.
        access: access entries.
    """

    name: str
    kubernetes: str
    support: str
    account: pulumi.Input[str]
    subnet_ids: Sequence[pulumi.Input[str]]
    public_cidrs: Sequence[str]
    client_cidrs: Sequence[str]
    client_security_groups: Sequence[str]
    service_cidr: str
    logs: Sequence[str]
    log_days: int
    logs_key_arn: pulumi.Input[str]
    secrets_key_arn: pulumi.Input[str]
    has_deletion_protection: bool
    access: Sequence[AccessEntry]


class Cluster(pulumi.ComponentResource):
    """The control plane.

    `ClusterArgs.access` must include the deploying role. Bootstrap admin permissions are off, because they would make
    the role of the first deployment an admin for good without any access entry that shows it.

    Attributes:
        name: name of the cluster, as an output, so that resources that use it depend on the cluster.
        endpoint: URL of the API server.
        certificate_authority: CA certificate, base64.
        security_group_id: the cluster security group, which EKS makes and the control plane and nodes share.
    """

    name: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    certificate_authority: pulumi.Output[str]
    security_group_id: pulumi.Output[str]

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:Cluster", name, None, opts)
        self._args = args
        self._child_opts = pulumi.ResourceOptions(parent=self)
        cluster = self._make_cluster()
        self.name, self.endpoint = cluster.name, cluster.endpoint
        self.certificate_authority = cluster.certificate_authority.data.apply(_present)
        self.security_group_id = cluster.vpc_config.cluster_security_group_id.apply(_present)
        self._admit_clients()
        for entry in args.access:
            self._make_access_entry(entry)
        self.register_outputs({"name": self.name, "endpoint": self.endpoint})

    def _make_role(self) -> Role:
        encrypt_secrets = Statement(
            sid="EncryptSecrets",
            actions=("kms:Encrypt", "kms:Decrypt", "kms:ListGrants", "kms:DescribeKey"),
            resources=(self._args.secrets_key_arn,),
        )
        return Role(
            "cluster",
            RoleArgs(
                description="The EKS control plane",
                trust=trust_service("eks.amazonaws.com", account=self._args.account),
                statements=(encrypt_secrets,),
                managed=("AmazonEKSClusterPolicy",),
            ),
            self._child_opts,
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
            # The stack installs the add-ons itself, at the release's versions.
            bootstrap_self_managed_addons=False,
            deletion_protection=args.has_deletion_protection,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[role, logs]),
        )

    def _admit_clients(self) -> None:
        """Rules of the cluster security group, which by itself admits its own members only, to the private endpoint."""
        for cidr in self._args.client_cidrs:
            self._admit(cidr, cidr_ipv4=cidr)
        for group in self._args.client_security_groups:
            self._admit(group, referenced_security_group_id=group)

    def _admit(
        self, client: str, *, cidr_ipv4: str | None = None, referenced_security_group_id: str | None = None
    ) -> None:
        aws.vpc.SecurityGroupIngressRule(
            f"client-{client.replace('/', '-')}",
            security_group_id=self.security_group_id,
            description="Clients of the API server",
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            cidr_ipv4=cidr_ipv4,
            referenced_security_group_id=referenced_security_group_id,
            opts=self._child_opts,
        )

    def _make_access_entry(self, entry: AccessEntry) -> None:
        resource = aws.eks.AccessEntry(
            entry.name,
            cluster_name=self.name,
            principal_arn=entry.principal_arn,
            type="STANDARD",
            kubernetes_groups=list(entry.groups),
            opts=self._child_opts,
        )
        if entry.is_admin:
            aws.eks.AccessPolicyAssociation(
                entry.name,
                cluster_name=self.name,
                principal_arn=resource.principal_arn,
                policy_arn=_CLUSTER_ADMIN,
                access_scope=aws.eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
                opts=self._child_opts,
            )


def _present(value: str | None) -> str:
    """An output that EKS sets on every cluster; null only if a targeted update skips a cluster that does not exist yet."""
    return value or ""


def make_cluster(context: BuildContext, encryption: Encryption, network: Network) -> Cluster:
    """Make the control plane with its access entries."""
    cluster = context.settings.cluster
    args = ClusterArgs(
        name=context.cluster_name,
        kubernetes=context.kubernetes,
        support=cluster.support.upper(),
        account=context.account,
        subnet_ids=list(network.private_subnet_ids.values()),
        public_cidrs=[str(cidr) for cidr in cluster.public_cidrs],
        client_cidrs=[str(cidr) for cidr in cluster.client_cidrs],
        client_security_groups=cluster.client_security_groups,
        service_cidr=str(context.settings.network.service_cidr),
        logs=cluster.logs,
        log_days=cluster.log_days,
        logs_key_arn=encryption.keys["logs"],
        secrets_key_arn=encryption.keys["cluster"],
        has_deletion_protection=context.protection.deletion_protection,
        access=access_entries(context.settings),
    )
    return Cluster("cluster", args, context.opts)


def access_entries(settings: StackSettings) -> Sequence[AccessEntry]:
    """One entry per IAM role, which may be an admin and a member of several teams at once."""
    admins = dict.fromkeys(settings.cluster.admin_roles)
    submitters = dict.fromkeys(role for team in settings.teams for role in team.roles)
    return [
        AccessEntry(
            principal_arn=role,
            is_admin=role in admins,
            groups=[names.team_group(team.name) for team in settings.teams if role in team.roles],
        )
        for role in admins | submitters
    ]

"""A control plane of the stack's own: IAM role, logs, encryption and endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.aws.cluster import ClientArgs, Cluster
from infra.aws.iam import Role, RoleArgs, Statement, trust_service
from infra.aws.logs import make_log_group


@dataclass(frozen=True, kw_only=True)
class ControlPlaneArgs:
    """Inputs of `NewCluster`.

    Attributes:
        name: name of the cluster.
        kubernetes: minor version, e.g. 1.35.
        support: upgrade policy, STANDARD or EXTENDED.
        account: AWS account.
        subnet_ids: subnets of at least two zones, for the control plane's network interfaces.
        public_cidrs: ranges that may reach the public endpoint; empty disables it.
        service_cidr: range of the Kubernetes services.
        logs: enabled control plane log types.
        log_days: log retention in days.
        logs_key_arn: KMS key of the logs.
        secrets_key_arn: KMS key of the envelope encryption of secrets.
        has_deletion_protection: whether EKS refuses to delete the cluster.
        clients: who reaches and uses the cluster.
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
    clients: ClientArgs


class NewCluster(Cluster):
    """The control plane.

    `ControlPlaneArgs.clients` must include the deploying role. Bootstrap admin permissions are off, because they would make
    the role of the first deployment an admin for good without any access entry that shows it.
    """

    def __init__(self, name: str, args: ControlPlaneArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(name, opts)
        self._args = args
        cluster = self._make_cluster()
        self.name, self.endpoint = cluster.name, cluster.endpoint
        self.certificate_authority = cluster.certificate_authority.data.apply(_present)
        self.security_group_id = cluster.vpc_config.cluster_security_group_id.apply(_present)
        self.node_security_group_ids = [self.security_group_id]
        self._admit_clients(args.clients)

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


def _present(value: str | None) -> str:
    """An output that EKS sets on every cluster; null only if a targeted update skips a cluster that does not exist yet."""
    return value or ""

"""The EKS cluster that the nodes join, whether the stack makes it or finds it: its clients and access entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.spec import names
from infra.spec.settings.stack import StackSettings


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
class ClientArgs:
    """Who reaches and uses the cluster.

    Attributes:
        client_cidrs: ranges outside the VPC that may reach the private endpoint.
        client_security_groups: security groups of peered VPCs whose members may reach the private endpoint.
        access: access entries of the stack.
    """

    client_cidrs: Sequence[str]
    client_security_groups: Sequence[str]
    access: Sequence[AccessEntry]


class Cluster(pulumi.ComponentResource):
    """A control plane, with what the stack adds to it: rules of its security group, and access entries.

    Attributes:
        name: name of the cluster, as an output, so that resources that use it depend on the cluster.
        endpoint: URL of the API server.
        certificate_authority: CA certificate, base64.
        security_group_id: the cluster security group, which EKS makes and the control plane and nodes share.
        node_security_group_ids: security groups of the stack's nodes.
    """

    name: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    certificate_authority: pulumi.Output[str]
    security_group_id: pulumi.Output[str]
    node_security_group_ids: Sequence[pulumi.Input[str]]

    def __init__(self, name: str, opts: pulumi.ResourceOptions) -> None:
        """Register the component; a subclass sets the attributes, and calls `_admit_clients`."""
        super().__init__("rtp:aws:Cluster", name, None, opts)
        self._child_opts = pulumi.ResourceOptions(parent=self)

    def _admit_clients(self, args: ClientArgs) -> None:
        """Rules of the cluster security group, which by itself admits its own members only, and access entries."""
        for cidr in args.client_cidrs:
            self._admit(cidr, cidr_ipv4=cidr)
        for group in args.client_security_groups:
            self._admit(group, referenced_security_group_id=group)
        for entry in args.access:
            self._make_access_entry(entry)
        self.register_outputs({"name": self.name, "endpoint": self.endpoint})

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
                policy_arn=names.CLUSTER_ADMIN,
                access_scope=aws.eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
                opts=self._child_opts,
            )


class ExistingCluster(Cluster):
    """A cluster that the stack does not make: it is looked up at every update, and no resource of the stack.

    Args:
        name: name of the component.
        cluster: name of the EKS cluster.
        clients: who reaches and uses it.
        opts: options of the component.
        node_groups: more security groups for the stack's nodes.
    """

    def __init__(
        self, name: str, cluster: str, clients: ClientArgs, opts: pulumi.ResourceOptions, *, node_groups: Sequence[str]
    ) -> None:
        super().__init__(name, opts)
        found = aws.eks.get_cluster_output(name=cluster, opts=pulumi.InvokeOutputOptions(parent=self))
        self.name = found.apply(lambda one: one.name)
        self.endpoint = found.apply(lambda one: one.endpoint)
        self.certificate_authority = found.apply(lambda one: one.certificate_authorities[0].data)
        self.security_group_id = found.apply(lambda one: one.vpc_config.cluster_security_group_id)
        self.node_security_group_ids = [self.security_group_id, *node_groups]
        self._admit_clients(clients)


def client_args(settings: StackSettings) -> ClientArgs:
    """Who reaches and uses the cluster, by the settings."""
    cluster = settings.cluster
    return ClientArgs(
        client_cidrs=[str(cidr) for cidr in cluster.client_cidrs],
        client_security_groups=cluster.client_security_groups,
        access=access_entries(settings),
    )


def access_entries(settings: StackSettings) -> Sequence[AccessEntry]:
    """One entry per IAM role, which may be an admin and a member of several teams at once.

    A role that an existing cluster has an entry for gets none: EKS keeps one per role.
    """
    existing = settings.cluster.existing
    known = () if existing is None else existing.admins
    admins = dict.fromkeys(settings.cluster.admin_roles)
    submitters = dict.fromkeys(role for team in settings.teams for role in team.roles)
    return [
        AccessEntry(
            principal_arn=role,
            is_admin=role in admins,
            groups=[names.team_group(team.name) for team in settings.teams if role in team.roles],
        )
        for role in admins | submitters
        if role not in known
    ]

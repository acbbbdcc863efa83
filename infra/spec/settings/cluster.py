"""The EKS cluster: access, administration and logs."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Network
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from infra.spec.matching import Matching
from infra.spec.section import Section
from infra.spec.settings.environment import RoleArn
from infra.spec.settings.existing import without_effect
from infra.spec.settings.retention import LogDays

ControlPlaneLog = Literal["api", "audit", "authenticator", "controllerManager", "scheduler"]
Driver = Literal["aws-ebs-csi-driver", "aws-efs-csi-driver"]
"""Add-on of a driver whose pods call AWS with a role that the stack's stores have to admit."""

LUSTRE_DRIVER = "aws-fsx-csi-driver"
"""Add-on that mounts FSx for Lustre. It has no role: its mounts call no AWS API, and nothing is provisioned from it
(aws-fsx-csi-driver, pkg/driver/node.go). It needs no package on the nodes: its image has the mount program, the kernel of Amazon
Linux 2023 the client."""

SecurityGroupId = Annotated[
    str,
    Matching(
        r"^(\d{12}/)?sg-[0-9a-f]{8,17}$", "must be the ID of a security group: sg-…, or ACCOUNT/sg-… of another account"
    ),
]
"""A security group; one of another account begins with the account, as EC2 writes it."""

ClusterName = Annotated[
    str,
    Matching(
        r"^[0-9A-Za-z][0-9A-Za-z_-]{0,99}$",
        "must be the name of an EKS cluster: at most 100 letters, digits, hyphens and underscores",
    ),
]

_OF_A_NEW_CLUSTER = ("support", "public_cidrs", "logs")
"""Settings that only a cluster of the stack's own has. `log_days` is the retention of the database's logs too."""


class ExistingCluster(Section):
    """An EKS cluster that the stack uses and does not make; it needs `network.existing`.

    The stack makes node groups, access entries and Pod Identity associations in it, and installs the platform. The preflight
    compares every value with AWS.
    """

    name: ClusterName = Field(description="Name of the cluster.")
    addons: tuple[str, ...] = Field(
        (),
        description="EKS add-ons of the release that the cluster lacks, which the stack installs; the cluster has the others.",
    )
    driver_roles: dict[Driver, RoleArn] = Field(
        {},
        description="IAM role of each storage driver that the cluster has; the stack's key and file system admit it. A driver is "
        "here or in `addons`.",
    )
    admins: tuple[RoleArn, ...] = Field(
        (),
        description="Those of admin_roles that administer the cluster already; they get no access entry of the stack.",
    )
    node_security_groups: tuple[
        Annotated[str, Matching(r"^sg-[0-9a-f]{8,17}$", "must be the ID of a security group: sg-…")], ...
    ] = Field(
        (),
        description="Security groups of the cluster's other nodes, if they lack the group that EKS makes for it; the stack's nodes join "
        "them, to reach pods there, such as CoreDNS.",
    )
    control_plane_cidrs: tuple[IPv4Network, ...] = Field(
        (), description="Ranges of the subnets that the cluster was made with; empty: they are the private subnets."
    )


class ClusterSettings(Section):
    """The control plane."""

    kubernetes: Annotated[str, Matching(r"^1\.\d{2}$", "must be a Kubernetes minor, e.g. 1.35")] | None = Field(
        None,
        description="Kubernetes minor that the release supports; null: the release's default.",
    )
    support: Literal["standard", "extended"] = Field(
        "standard",
        description="EKS support policy: extended keeps an old minor at six times the price; standard upgrades it.",
    )
    public_cidrs: tuple[IPv4Network, ...] = Field(
        (), description="Ranges that may reach the API server from the internet; empty: private endpoint only."
    )
    client_cidrs: tuple[IPv4Network, ...] = Field(
        (), description="Ranges, within network.peered_cidrs, that may reach the API server's private endpoint."
    )
    client_security_groups: tuple[SecurityGroupId, ...] = Field(
        (), description="Security groups, in a peered VPC, whose members may reach the API server's private endpoint."
    )
    admin_roles: tuple[RoleArn, ...] = Field(
        min_length=1, description="IAM roles with cluster-admin, through access entries."
    )
    logs: tuple[ControlPlaneLog, ...] = Field(
        ("api", "audit", "authenticator", "controllerManager", "scheduler"),
        description="Control plane logs that EKS sends to CloudWatch.",
    )
    log_days: LogDays = Field(90, description="Retention of control plane logs in days.")
    existing: ExistingCluster | None = Field(
        None,
        description="A cluster that exists, for an environment that makes none; null: the stack makes its cluster.",
    )

    @model_validator(mode="after")
    def _the_cluster_is_new_or_existing(self) -> Self:
        wrong = [] if self.existing is None else [*without_effect(self, _OF_A_NEW_CLUSTER, what="cluster")]
        if wrong:
            raise ValidationError.from_exception_data(type(self).__name__, wrong)
        return self

    @property
    def is_shared(self) -> bool:
        """Whether others may use the cluster too: one that the stack does not make."""
        return self.existing is not None

    def installs(self, addon: str) -> bool:
        """Whether the stack installs an add-on of the release: into a cluster of its own, each."""
        return self.existing is None or addon in self.existing.addons

    @property
    def foreign_drivers(self) -> Mapping[Driver, str]:
        """Role of each storage driver that the stack does not install, by add-on."""
        return {} if self.existing is None else self.existing.driver_roles

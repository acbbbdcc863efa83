"""The EKS cluster: access, administration and logs."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import Field

from infra.spec.matching import Matching
from infra.spec.section import Section
from infra.spec.settings.environment import RoleArn
from infra.spec.settings.retention import LogDays

ControlPlaneLog = Literal["api", "audit", "authenticator", "controllerManager", "scheduler"]


SecurityGroupId = Annotated[
    str,
    Matching(
        r"^(\d{12}/)?sg-[0-9a-f]{8,17}$", "must be the ID of a security group: sg-…, or ACCOUNT/sg-… of another account"
    ),
]
"""A security group; one of another account begins with the account, as EC2 writes it."""


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

"""The EKS cluster: access, administration and logs."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Literal

from pydantic import Field

from infra.spec.section import Section
from infra.spec.settings.environment import RoleArn
from infra.spec.settings.retention import LogDays

ControlPlaneLog = Literal["api", "audit", "authenticator", "controllerManager", "scheduler"]


class ClusterSettings(Section):
    """The control plane."""

    kubernetes: str | None = Field(
        None,
        pattern=r"^1\.\d{2}$",
        description="Kubernetes minor that the release supports; null: the release's default.",
    )
    support: Literal["standard", "extended"] = Field(
        "standard",
        description="EKS support policy: extended keeps an old minor at six times the price; standard upgrades it.",
    )
    public_cidrs: tuple[IPv4Network, ...] = Field(
        (), description="Ranges that may reach the API server from the internet; empty: private endpoint only."
    )
    admin_roles: tuple[RoleArn, ...] = Field(
        min_length=1, description="IAM roles with cluster-admin, through access entries."
    )
    logs: tuple[ControlPlaneLog, ...] = Field(
        ("api", "audit", "authenticator", "controllerManager", "scheduler"),
        description="Control plane logs that EKS sends to CloudWatch.",
    )
    log_days: LogDays = Field(90, description="Retention of control plane logs in days.")

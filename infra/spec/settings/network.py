"""The VPC, and its division into subnets."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, NonNegativeInt

from infra.spec.capacity import AvailabilityZone
from infra.spec.section import Section
from infra.spec.settings.retention import LogDays

InterfaceEndpoint = Literal[
    "ecr.api", "ecr.dkr", "sts", "eks", "eks-auth", "ec2", "logs", "secretsmanager", "kms", "elasticfilesystem"
]

RESERVED_ADDRESSES = 5
"""Addresses AWS reserves in every subnet (VPC user guide, "Subnet sizing")."""

PREFIX_ADDRESSES = 16
"""Addresses of a /28 prefix, the unit in which the VPC CNI assigns addresses to nodes (EKS user guide, "Assign more IP
addresses")."""


class NetworkSettings(Section):
    """The VPC."""

    cidr: IPv4Network = Field(description="Address range of the VPC, /16 to /22.")
    availability_zones: Annotated[tuple[AvailabilityZone, ...], Field(min_length=2, max_length=3)] = Field(
        description="2 or 3 zones of the region; each has a private and a public subnet."
    )
    nat: Literal["single", "per_az"] = Field(
        "single",
        description="One NAT gateway for all zones, or one per zone, so that a zone failure stays in the zone.",
    )
    service_cidr: IPv4Network = Field(
        IPv4Network("172.20.0.0/16"), description="Address range of Kubernetes Services, /12 to /24, outside the VPC."
    )
    peered_cidrs: tuple[IPv4Network, ...] = Field(
        (), description="Ranges reached by peering or VPN; the VPC and the Services must not overlap them."
    )
    pods_per_node: Annotated[int, Field(ge=16, le=110)] = Field(
        64, description="The kubelet's maxPods; subnets are sized for it."
    )
    interface_endpoints: tuple[InterfaceEndpoint, ...] = Field(
        ("ecr.api", "ecr.dkr", "sts", "eks", "eks-auth", "ec2", "logs"),
        description="AWS services with an interface endpoint in the VPC; S3 always has a gateway endpoint, free of charge.",
    )
    flow_log_days: LogDays = Field(30, description="Retention of VPC flow logs in days.")


class Subnets(NamedTuple):
    """Address ranges by availability zone, in the order of the settings."""

    private: tuple[IPv4Network, ...]
    public: tuple[IPv4Network, ...]


def subnets_of(network: NetworkSettings) -> Subnets:
    """Divide the VPC: a quarter per zone for the private subnet; the last quarter, divided by four, for public subnets.

    The division is independent of the number of zones, so adding a third zone does not change the first two.
    """
    *private, rest = network.cidr.subnets(prefixlen_diff=2)
    zones = len(network.availability_zones)
    return Subnets(tuple(private[:zones]), tuple(rest.subnets(prefixlen_diff=2))[:zones])


def addresses_per_node(pods: NonNegativeInt) -> int:
    """Addresses a node takes from its subnet: its own, /28 prefixes for `pods`, and one spare prefix."""
    return 1 + PREFIX_ADDRESSES * (-(-pods // PREFIX_ADDRESSES) + 1)

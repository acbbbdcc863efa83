"""The VPC, and how its address range is cut into subnets."""

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
"""Addresses AWS keeps in every subnet (VPC user guide, "Subnet sizing")."""

PREFIX_ADDRESSES = 16
"""Addresses of the /28 prefixes the VPC CNI gives to a node at a time (EKS user guide, "Assign more IP addresses")."""


class NetworkSettings(Section):
    """The VPC."""

    cidr: IPv4Network = Field(description="Address range of the VPC, /16 to /22.")
    availability_zones: Annotated[tuple[AvailabilityZone, ...], Field(min_length=2, max_length=3)] = Field(
        description="Zones with a subnet of every kind: 2 or 3, of the region."
    )
    nat: Literal["single", "per_az"] = Field(
        "single", description="One NAT gateway for all, or one per zone, so that a lost zone takes no other with it."
    )
    service_cidr: IPv4Network = Field(
        IPv4Network("172.20.0.0/16"), description="Address range of Kubernetes services, /12 to /24, outside the VPC."
    )
    peered_cidrs: tuple[IPv4Network, ...] = Field(
        (), description="Ranges reached by peering or VPN, which the VPC and the services must leave alone."
    )
    pods_per_node: Annotated[int, Field(ge=16, le=110)] = Field(
        64, description="Largest number of pods on a node: the kubelet's maxPods, and what subnets are sized for."
    )
    interface_endpoints: tuple[InterfaceEndpoint, ...] = Field(
        ("ecr.api", "ecr.dkr", "sts", "eks", "eks-auth", "ec2", "logs"),
        description="AWS services reached inside the VPC; S3 always is, by a gateway endpoint that costs nothing.",
    )
    flow_log_days: LogDays = Field(30, description="Days flow logs are kept.")


class Subnets(NamedTuple):
    """Address ranges by availability zone, in the order of the settings."""

    private: tuple[IPv4Network, ...]
    public: tuple[IPv4Network, ...]


def subnets_of(network: NetworkSettings) -> Subnets:
    """Cut the VPC: a quarter for the nodes of each zone, and the last quarter, cut in four again, for what is public.

    The cut does not depend on the number of zones, so that a third zone can be added without moving the first two.
    """
    *private, rest = network.cidr.subnets(prefixlen_diff=2)
    zones = len(network.availability_zones)
    return Subnets(tuple(private[:zones]), tuple(rest.subnets(prefixlen_diff=2))[:zones])


def addresses_per_node(pods: NonNegativeInt) -> int:
    """Addresses a node takes from its subnet: its own, and enough prefixes of 16 for `pods` and one spare."""
    return 1 + PREFIX_ADDRESSES * (-(-pods // PREFIX_ADDRESSES) + 1)

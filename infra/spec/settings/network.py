"""The VPC, and its division into subnets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, NonNegativeInt, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from infra.spec.capacity import AvailabilityZone
from infra.spec.matching import Matching
from infra.spec.section import Section
from infra.spec.settings.existing import without_effect
from infra.spec.settings.retention import LogDays

InterfaceEndpoint = Literal[
    "ecr.api", "ecr.dkr", "sts", "eks", "eks-auth", "ec2", "logs", "secretsmanager", "kms", "elasticfilesystem"
]

VpcId = Annotated[str, Matching(r"^vpc-[0-9a-f]{8,17}$", "must be the ID of a VPC: vpc-…")]
SubnetId = Annotated[str, Matching(r"^subnet-[0-9a-f]{8,17}$", "must be the ID of a subnet: subnet-…")]

RESERVED_ADDRESSES = 5
"""Addresses AWS reserves in every subnet (VPC user guide, "Subnet sizing")."""

PREFIX_ADDRESSES = 16
"""Addresses of a /28 prefix, the unit in which the VPC CNI assigns addresses to nodes (EKS user guide, "Assign more IP
addresses")."""

_OF_A_NEW_VPC = ("cidr", "nat", "interface_endpoints", "flow_log_days")
"""Settings that only a VPC of the stack's own has."""


class ExistingSubnet(Section):
    """A subnet that the stack uses and does not make."""

    id: SubnetId = Field(description="ID of the subnet, subnet-….")
    cidr: IPv4Network = Field(description="Address range of the subnet.")


class ExistingVpc(Section):
    """A VPC that the stack uses and does not make: it changes neither subnets, routes, endpoints nor flow logs.

    The preflight compares every value with AWS.
    """

    vpc_id: VpcId = Field(description="ID of the VPC, vpc-….")
    cidrs: tuple[IPv4Network, ...] = Field(min_length=1, description="All address ranges of the VPC.")
    private_subnets: dict[str, ExistingSubnet] = Field(
        description="Subnet for nodes and stores by zone, with a way out that is not an internet gateway; one for each of "
        "availability_zones."
    )
    public_subnets: dict[str, ExistingSubnet] = Field(
        {}, description="Subnet for public load balancers by zone; needed for single_sign_on.internet_facing only."
    )


class NetworkSettings(Section):
    """The VPC."""

    cidr: IPv4Network | None = Field(
        None, description="Address range of the VPC, /16 to /22; null only where `existing` names one."
    )
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
    existing: ExistingVpc | None = Field(
        None, description="A VPC that exists, for an environment that makes none; null: the stack makes its VPC."
    )

    @model_validator(mode="after")
    def _the_vpc_is_new_or_existing(self) -> Self:
        wrong = [*self._missing_range()] if self.existing is None else [*self._of_a_new_vpc(), *self._wrong_zones()]
        if wrong:
            raise ValidationError.from_exception_data(type(self).__name__, wrong)
        return self

    def _of_a_new_vpc(self) -> Iterator[InitErrorDetails]:
        return without_effect(self, _OF_A_NEW_VPC, what="VPC")

    def _missing_range(self) -> Iterator[InitErrorDetails]:
        if self.cidr is None:
            yield InitErrorDetails(type="missing", loc=("cidr",), input=None)

    def _wrong_zones(self) -> Iterator[InitErrorDetails]:
        """A zone without a subnet would have no nodes, and a subnet of another zone would have no use."""
        zones, shown = set(self.availability_zones), ", ".join(self.availability_zones)
        rule = PydanticCustomError("zones_differ", f"must have one subnet for each of availability_zones: {shown}")
        for key in ("private_subnets", "public_subnets"):
            given: Mapping[str, ExistingSubnet] = getattr(self.existing, key)
            if set(given) != zones and (given or key == "private_subnets"):
                yield InitErrorDetails(type=rule, loc=("existing", key), input=", ".join(given))

    @property
    def vpc_cidrs(self) -> Mapping[str, IPv4Network]:
        """Address ranges of the VPC by the setting that has them; an existing VPC may have several."""
        if self.existing is None:
            assert self.cidr is not None, "neither cidr nor existing, which the validator excludes"
            return {"network.cidr": self.cidr}
        return {f"network.existing.cidrs.{index}": cidr for index, cidr in enumerate(self.existing.cidrs)}


class Subnets(NamedTuple):
    """Address ranges by availability zone, in the order of the settings; `public` is empty in a VPC that has none for the stack."""

    private: tuple[IPv4Network, ...]
    public: tuple[IPv4Network, ...]


def subnets_of(network: NetworkSettings) -> Subnets:
    """The subnets of an existing VPC; a new one is divided.

    Each zone gets a quarter for its private subnet; the last quarter, divided by four, is for public subnets. The division is
    independent of the number of zones, so adding a third zone does not change the first two.
    """
    existing, zones = network.existing, network.availability_zones
    if existing is not None:
        private, public = existing.private_subnets, existing.public_subnets
        return Subnets(
            tuple(private[zone].cidr for zone in zones), tuple(public[zone].cidr for zone in zones if zone in public)
        )
    (cidr,) = network.vpc_cidrs.values()
    *quarters, rest = cidr.subnets(prefixlen_diff=2)
    return Subnets(tuple(quarters[: len(zones)]), tuple(rest.subnets(prefixlen_diff=2))[: len(zones)])


def addresses_per_node(pods: NonNegativeInt) -> int:
    """Addresses a node takes from its subnet: its own, /28 prefixes for `pods`, and one spare prefix."""
    return 1 + PREFIX_ADDRESSES * (-(-pods // PREFIX_ADDRESSES) + 1)

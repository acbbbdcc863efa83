"""What AWS says about an existing VPC: plain facts, read once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.lifecycle.account.aws import Client, Session
from infra.lifecycle.existing.requests import RETRIES, pages, tags_of
from infra.spec.names import STACK_TAG, stack_tag
from infra.spec.settings.network import PREFIX_ADDRESSES, ExistingVpc
from infra.spec.settings.stack import StackSettings

_EVERYWHERE = "0.0.0.0/0"
_TARGETS = (
    "NatGatewayId",
    "TransitGatewayId",
    "GatewayId",
    "NetworkInterfaceId",
    "VpcPeeringConnectionId",
    "CoreNetworkArn",
    "LocalGatewayId",
    "CarrierGatewayId",
    "InstanceId",
)
"""Fields of a route with its target (EC2 API, Route); an instance's route also has its interface."""


@dataclass(frozen=True, kw_only=True)
class Route:
    """The default route of a subnet.

    Attributes:
        target: ID of the gateway or interface, e.g. nat-…, igw-….
        is_blackhole: whether the target is gone.
    """

    target: str
    is_blackhole: bool


@dataclass(frozen=True, kw_only=True)
class Subnet:
    """A subnet.

    Attributes:
        vpc_id: its VPC.
        zone: its availability zone.
        cidr: its address range.
        free: addresses that nothing uses.
        ours: addresses that the stack's own nodes use.
        tags: its tags.
        table_id: its route table; empty if it has none.
        default_route: its default route, or None.
    """

    vpc_id: str
    zone: str
    cidr: str
    free: int
    ours: int
    tags: Mapping[str, str]
    table_id: str
    default_route: Route | None


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A VPC endpoint that is in service.

    Attributes:
        service: the last parts of the service's name, e.g. ecr.api.
        is_gateway: whether route tables lead to it, instead of an address.
        has_private_dns: whether the service's own name resolves to it.
        table_ids: route tables that lead to it.
    """

    service: str
    is_gateway: bool
    has_private_dns: bool
    table_ids: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Vpc:
    """A VPC as far as the platform is concerned.

    Attributes:
        cidrs: its address ranges.
        has_dns_support: whether Amazon's DNS server answers in it.
        has_dns_hostnames: whether its instances get DNS names, which private names of endpoints and file systems need.
        tags: its tags.
        subnets: the subnets of the settings that exist, by ID.
        endpoints: its endpoints that are in service.
    """

    cidrs: frozenset[str]
    has_dns_support: bool
    has_dns_hostnames: bool
    tags: Mapping[str, str]
    subnets: Mapping[str, Subnet]
    endpoints: tuple[Endpoint, ...]


def read_vpc(settings: StackSettings, session: Session) -> Vpc | None:
    """The existing VPC of an environment; None if it does not exist, or the settings name none.

    Raises:
        BotoCoreError: AWS does not answer.
        ClientError: AWS refuses the request.
    """
    stated = settings.network.existing
    if stated is None:
        return None
    ec2 = session.client("ec2", config=RETRIES)
    found = pages(ec2, "describe_vpcs", "Vpcs", {"vpc-id": [stated.vpc_id]})
    return next((_vpc(one, stated, settings, ec2) for one in found), None)


def _vpc(found: Mapping[str, Any], stated: ExistingVpc, settings: StackSettings, ec2: Client) -> Vpc:
    ranges = found.get("CidrBlockAssociationSet") or [found]
    return Vpc(
        cidrs=frozenset(
            one["CidrBlock"]
            for one in ranges
            if one.get("CidrBlockState", {}).get("State", "associated") == "associated"
        ),
        has_dns_support=_attribute(ec2, stated.vpc_id, "enableDnsSupport"),
        has_dns_hostnames=_attribute(ec2, stated.vpc_id, "enableDnsHostnames"),
        tags=tags_of(found),
        subnets=dict(_subnets(stated, settings, ec2)),
        endpoints=tuple(_endpoints(stated.vpc_id, settings.aws.region, ec2)),
    )


def _attribute(ec2: Client, vpc_id: str, name: str) -> bool:
    answer = ec2.describe_vpc_attribute(VpcId=vpc_id, Attribute=name)
    return bool(answer[f"{name[0].upper()}{name[1:]}"]["Value"])


def _subnets(stated: ExistingVpc, settings: StackSettings, ec2: Client) -> Iterator[tuple[str, Subnet]]:
    ids = [subnet.id for subnets in (stated.private_subnets, stated.public_subnets) for subnet in subnets.values()]
    tables = [*pages(ec2, "describe_route_tables", "RouteTables", {"vpc-id": [stated.vpc_id]})]
    used = _used_by_nodes(settings, ec2)
    for one in pages(ec2, "describe_subnets", "Subnets", {"subnet-id": ids}):
        id_ = one["SubnetId"]
        table = _table_of(id_, tables)
        yield (
            id_,
            Subnet(
                vpc_id=one["VpcId"],
                zone=one["AvailabilityZone"],
                cidr=one["CidrBlock"],
                free=one["AvailableIpAddressCount"],
                ours=used[id_],
                tags=tags_of(one),
                table_id=table.get("RouteTableId", ""),
                default_route=_default_route(table),
            ),
        )


def _table_of(subnet_id: str, tables: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The route table of a subnet: its own, else the main table of the VPC."""
    main: Mapping[str, Any] = {}
    for table in tables:
        for association in table.get("Associations", ()):
            if association.get("SubnetId") == subnet_id:
                return table
            if association.get("Main"):
                main = table
    return main


def _default_route(table: Mapping[str, Any]) -> Route | None:
    for route in table.get("Routes", ()):
        if route.get("DestinationCidrBlock") == _EVERYWHERE:
            target = next((str(route[field]) for field in _TARGETS if route.get(field)), "")
            return Route(target=target, is_blackhole=route.get("State") == "blackhole")
    return None


def _used_by_nodes(settings: StackSettings, ec2: Client) -> Counter[str]:
    """Addresses of the stack's nodes by subnet: those of their interfaces, and of the prefixes that the VPC CNI has added."""
    used: Counter[str] = Counter()
    for reservation in pages(ec2, "describe_instances", "Reservations", {f"tag:{STACK_TAG}": [stack_tag(settings)]}):
        for instance in reservation["Instances"]:
            for interface in instance.get("NetworkInterfaces", ()):
                prefixes = interface.get("Ipv4Prefixes") or ()
                used[interface["SubnetId"]] += len(interface["PrivateIpAddresses"]) + PREFIX_ADDRESSES * len(prefixes)
    return used


def _endpoints(vpc_id: str, region: str, ec2: Client) -> Iterator[Endpoint]:
    for one in pages(ec2, "describe_vpc_endpoints", "VpcEndpoints", {"vpc-id": [vpc_id]}):
        if str(one.get("State", "")).lower() == "available":
            yield Endpoint(
                service=one["ServiceName"].removeprefix(f"com.amazonaws.{region}."),
                is_gateway=one.get("VpcEndpointType") == "Gateway",
                has_private_dns=bool(one.get("PrivateDnsEnabled")),
                table_ids=frozenset(one.get("RouteTableIds") or ()),
            )

"""The VPC and what is in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infra.lifecycle.leftovers.found import Call, Found, Key, Place
from infra.lifecycle.leftovers.kind import Kind, Phase, actions, one_call, pages, tags_in
from infra.lifecycle.leftovers.kinds.compute import INSTANCE
from infra.spec.catalog import Catalog

VPC = "VPC"
SECURITY_GROUP = "security group"
INTERFACE_INSTANCE_TAG = "node.k8s.amazonaws.com/instance_id"
"""Tag of the VPC CNI on an interface that it made: the instance it was made for."""


def _in_vpc(id_: str | None) -> tuple[Key, ...]:
    return (Key(VPC, id_),) if id_ else ()


def _find_vpcs(place: Place) -> Iterator[Found]:
    for one in pages(place.client("ec2"), "describe_vpcs", "Vpcs"):
        if not one.get("IsDefault"):
            yield Found(id=one["VpcId"], tags=tags_in(one.get("Tags")))


def _find_nat_gateways(place: Place) -> Iterator[Found]:
    for one in pages(place.client("ec2"), "describe_nat_gateways", "NatGateways"):
        if one["State"] not in {"deleted", "failed"}:
            yield Found(
                id=one["NatGatewayId"],
                tags=tags_in(one.get("Tags")),
                parents=_in_vpc(one.get("VpcId")),
                is_going=one["State"] == "deleting",
            )


def _find_addresses(place: Place) -> Iterator[Found]:
    for one in pages(place.client("ec2"), "describe_addresses", "Addresses"):
        if one.get("AllocationId"):
            yield Found(
                id=one["AllocationId"],
                name=one.get("PublicIp", ""),
                tags=tags_in(one.get("Tags")),
                facts={"association": one.get("AssociationId") or ""},
            )


def _remove_address(found: Found, _: Place) -> Iterator[Call]:
    if found.facts["association"]:
        yield Call("ec2", "DisassociateAddress", {"AssociationId": found.facts["association"]})
    yield Call("ec2", "ReleaseAddress", {"AllocationId": found.id})


def _find_interfaces(place: Place) -> Iterator[Found]:
    """Interfaces that nothing uses. The others go with what uses them, and AWS refuses to delete those of its services."""
    for one in pages(place.client("ec2"), "describe_network_interfaces", "NetworkInterfaces"):
        if one["Status"] == "available":
            tags = tags_in(one.get("TagSet"))
            made_for = tags.get(INTERFACE_INSTANCE_TAG)
            instance = (Key(INSTANCE, made_for),) if made_for else ()
            yield Found(
                id=one["NetworkInterfaceId"],
                name=one.get("Description") or "",
                tags=tags,
                parents=(*_in_vpc(one.get("VpcId")), *instance),
                holds=tuple(Key(SECURITY_GROUP, group["GroupId"]) for group in one.get("Groups") or ()),
            )


def _find_endpoints(place: Place) -> Iterator[Found]:
    for one in pages(place.client("ec2"), "describe_vpc_endpoints", "VpcEndpoints"):
        state = str(one.get("State", "")).lower()
        if state != "deleted":
            yield Found(
                id=one["VpcEndpointId"],
                name=one["ServiceName"],
                tags=tags_in(one.get("Tags")),
                parents=_in_vpc(one.get("VpcId")),
                is_going=state == "deleting",
                facts={"zones": len(one.get("SubnetIds") or ()) if one["VpcEndpointType"] == "Interface" else 0},
            )


def _remove_endpoint(found: Found, _: Place) -> Iterator[Call]:
    yield Call("ec2", "DeleteVpcEndpoints", {"VpcEndpointIds": [found.id]})


def _endpoint_price(found: Found, catalog: Catalog) -> float | None:
    price, zones = catalog.prices.services.interface_endpoint_az_hour.usd, int(found.facts["zones"])
    return 0.0 if zones == 0 else None if price is None else zones * price


def _find_flow_logs(place: Place) -> Iterator[Found]:
    for one in pages(place.client("ec2"), "describe_flow_logs", "FlowLogs"):
        yield Found(id=one["FlowLogId"], tags=tags_in(one.get("Tags")), parents=_in_vpc(one.get("ResourceId")))


def _remove_flow_log(found: Found, _: Place) -> Iterator[Call]:
    yield Call("ec2", "DeleteFlowLogs", {"FlowLogIds": [found.id]})


def _find_security_groups(place: Place) -> Iterator[Found]:
    """All but the default groups, which go with their VPC."""
    for one in pages(place.client("ec2"), "describe_security_groups", "SecurityGroups"):
        if one["GroupName"] != "default":
            yield Found(
                id=one["GroupId"],
                name=one["GroupName"],
                tags=tags_in(one.get("Tags")),
                parents=_in_vpc(one.get("VpcId")),
            )


def _revoke_rules(found: Found, place: Place) -> Iterator[Call]:
    """A group cannot be deleted while a rule of another one refers to it, and groups refer to each other."""
    filters = [{"Name": "group-id", "Values": [found.id]}]
    rules = [*pages(place.client("ec2"), "describe_security_group_rules", "SecurityGroupRules", Filters=filters)]
    for is_egress, operation in ((False, "RevokeSecurityGroupIngress"), (True, "RevokeSecurityGroupEgress")):
        ids = [rule["SecurityGroupRuleId"] for rule in rules if bool(rule.get("IsEgress")) is is_egress]
        if ids:
            yield Call("ec2", operation, {"GroupId": found.id, "SecurityGroupRuleIds": ids})


def _find_route_tables(place: Place) -> Iterator[Found]:
    """All but the main tables, which go with their VPC."""
    for one in pages(place.client("ec2"), "describe_route_tables", "RouteTables"):
        uses = one.get("Associations") or ()
        if not any(use.get("Main") for use in uses):
            yield Found(
                id=one["RouteTableId"],
                tags=tags_in(one.get("Tags")),
                parents=_in_vpc(one.get("VpcId")),
                facts={"associations": [use["RouteTableAssociationId"] for use in uses]},
            )


def _remove_route_table(found: Found, _: Place) -> Iterator[Call]:
    for association in found.facts["associations"]:
        yield Call("ec2", "DisassociateRouteTable", {"AssociationId": association})
    yield Call("ec2", "DeleteRouteTable", {"RouteTableId": found.id})


def _find_subnets(place: Place) -> Iterator[Found]:
    for one in pages(place.client("ec2"), "describe_subnets", "Subnets"):
        yield Found(id=one["SubnetId"], tags=tags_in(one.get("Tags")), parents=_in_vpc(one.get("VpcId")))


def _find_internet_gateways(place: Place) -> Iterator[Found]:
    for one in pages(place.client("ec2"), "describe_internet_gateways", "InternetGateways"):
        vpcs = [attachment["VpcId"] for attachment in one.get("Attachments") or ()]
        yield Found(
            id=one["InternetGatewayId"],
            tags=tags_in(one.get("Tags")),
            parents=tuple(Key(VPC, vpc) for vpc in vpcs),
            facts={"vpcs": vpcs},
        )


def _remove_internet_gateway(found: Found, _: Place) -> Iterator[Call]:
    for vpc in found.facts["vpcs"]:
        yield Call("ec2", "DetachInternetGateway", {"InternetGatewayId": found.id, "VpcId": vpc})
    yield Call("ec2", "DeleteInternetGateway", {"InternetGatewayId": found.id})


def _ec2(name: str, phase: Phase, reads: str, writes: str, **rest: Any) -> Kind:  # noqa: ANN401 - the fields of `Kind`
    return Kind(name=name, phase=phase, reads=actions("ec2", reads), writes=actions("ec2", writes), **rest)


def _hourly(name: str) -> Mapping[str, Any]:
    """The price of a service that the table has by the hour."""
    return {"price": lambda _, catalog: getattr(catalog.prices.services, name).usd}


KINDS = (
    _ec2(
        "NAT gateway",
        Phase.NAT_GATEWAYS,
        "DescribeNatGateways",
        "DeleteNatGateway",
        find=_find_nat_gateways,
        remove=one_call("ec2", "DeleteNatGateway", "NatGatewayId"),
        **_hourly("nat_gateway_hour"),
    ),
    _ec2(
        "elastic IP address",
        Phase.ADDRESSES,
        "DescribeAddresses",
        "DisassociateAddress ReleaseAddress",
        find=_find_addresses,
        remove=_remove_address,
        **_hourly("public_ipv4_hour"),
    ),
    _ec2(
        "network interface",
        Phase.INTERFACES,
        "DescribeNetworkInterfaces",
        "DeleteNetworkInterface",
        find=_find_interfaces,
        remove=one_call("ec2", "DeleteNetworkInterface", "NetworkInterfaceId"),
    ),
    _ec2(
        "VPC endpoint",
        Phase.ENDPOINTS,
        "DescribeVpcEndpoints",
        "DeleteVpcEndpoints",
        find=_find_endpoints,
        remove=_remove_endpoint,
        price=_endpoint_price,
    ),
    _ec2(
        "flow log",
        Phase.ENDPOINTS,
        "DescribeFlowLogs",
        "DeleteFlowLogs",
        find=_find_flow_logs,
        remove=_remove_flow_log,
    ),
    _ec2(
        SECURITY_GROUP,
        Phase.SECURITY_GROUPS,
        "DescribeSecurityGroups DescribeSecurityGroupRules",
        "RevokeSecurityGroupIngress RevokeSecurityGroupEgress DeleteSecurityGroup",
        find=_find_security_groups,
        prepare=_revoke_rules,
        remove=one_call("ec2", "DeleteSecurityGroup", "GroupId"),
    ),
    _ec2(
        "route table",
        Phase.SUBNETS,
        "DescribeRouteTables",
        "DisassociateRouteTable DeleteRouteTable",
        find=_find_route_tables,
        remove=_remove_route_table,
    ),
    _ec2(
        "subnet",
        Phase.SUBNETS,
        "DescribeSubnets",
        "DeleteSubnet",
        find=_find_subnets,
        remove=one_call("ec2", "DeleteSubnet", "SubnetId"),
    ),
    _ec2(
        "internet gateway",
        Phase.SUBNETS,
        "DescribeInternetGateways",
        "DetachInternetGateway DeleteInternetGateway",
        find=_find_internet_gateways,
        remove=_remove_internet_gateway,
    ),
    _ec2(VPC, Phase.VPC, "DescribeVpcs", "DeleteVpc", find=_find_vpcs, remove=one_call("ec2", "DeleteVpc", "VpcId")),
)
"""Kinds of this module."""

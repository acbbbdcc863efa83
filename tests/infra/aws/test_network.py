"""The network: zones, NAT gateways, endpoints, flow logs and security groups."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest

from infra.policy import tokens
from tests.infra.aws.graphs import ENVIRONMENTS, graph, settings_of, unusual

ROUTE = "aws:ec2/route:Route"
ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
every_environment = pytest.mark.parametrize("environment", ENVIRONMENTS)


@every_environment
def test_every_zone_has_a_private_and_a_public_subnet_inside_the_vpc(environment: str) -> None:
    recording, network = graph(environment), settings_of(environment).network
    subnets = recording.of_type(tokens.SUBNET)
    wanted = {f"{kind}-{zone}" for kind in ("private", "public") for zone in network.availability_zones}
    assert {subnet.name for subnet in subnets} == wanted
    ranges = [IPv4Network(subnet.properties["cidrBlock"]) for subnet in subnets]
    (cidr,) = network.vpc_cidrs.values()
    assert all(one.subnet_of(cidr) for one in ranges)
    assert not any(one.overlaps(other) for index, one in enumerate(ranges) for other in ranges[:index])


@every_environment
def test_no_subnet_assigns_public_addresses(environment: str) -> None:
    assert {one.properties["mapPublicIpOnLaunch"] for one in graph(environment).of_type(tokens.SUBNET)} == {False}


@pytest.mark.parametrize(("environment", "gateways"), [("dev", 1), ("staging", 1), ("prod", 3), ("test", 1)])
def test_the_number_of_nat_gateways_follows_the_settings(environment: str, gateways: int) -> None:
    assert len(graph(environment).of_type(tokens.NAT_GATEWAY)) == gateways


def test_in_prod_every_zone_uses_its_own_nat_gateway() -> None:
    recording = graph("prod")
    for zone in settings_of("prod").network.availability_zones:
        route = recording.find(ROUTE, f"private-{zone}")
        gateway = recording.find(tokens.NAT_GATEWAY, f"nat-{zone}")
        assert route.property_dependencies["natGatewayId"] == (gateway.urn,)
        assert gateway.property_dependencies["subnetId"] == (recording.find(tokens.SUBNET, f"public-{zone}").urn,)


def test_zones_share_a_single_nat_gateway() -> None:
    recording = graph("dev")
    (gateway,) = recording.of_type(tokens.NAT_GATEWAY)
    private = [route for route in recording.of_type(ROUTE) if route.name.startswith("private-")]
    assert len(private) == 3
    assert {route.property_dependencies["natGatewayId"] for route in private} == {(gateway.urn,)}


def test_every_route_table_has_the_s3_gateway_endpoint() -> None:
    endpoint = graph("prod").find(ENDPOINT, "s3")
    tables = graph("prod").of_type("aws:ec2/routeTable:RouteTable")
    assert endpoint.properties["vpcEndpointType"] == "Gateway"
    assert set(endpoint.property_dependencies["routeTableIds"]) == {table.urn for table in tables}


def test_every_configured_service_has_an_interface_endpoint_in_every_zone() -> None:
    recording, network = graph("prod"), settings_of("prod").network
    private = {one.urn for one in recording.of_type(tokens.SUBNET) if one.name.startswith("private-")}
    for service in network.interface_endpoints:
        endpoint = recording.find(ENDPOINT, service)
        assert endpoint.properties["serviceName"] == f"com.amazonaws.us-east-1.{service}"
        assert endpoint.properties["privateDnsEnabled"] is True
        assert set(endpoint.property_dependencies["subnetIds"]) == private


def test_only_configured_endpoints_exist() -> None:
    assert {one.name for one in unusual().of_type(ENDPOINT)} == {"s3", "sts"}


@every_environment
def test_flow_logs_of_all_traffic_have_the_configured_retention(environment: str) -> None:
    recording = graph(environment)
    (log,) = recording.of_type(tokens.FLOW_LOG)
    group = recording.find(tokens.LOG_GROUP, "flow-logs")
    assert log.properties["trafficType"] == "ALL"
    assert log.property_dependencies["logDestination"] == (group.urn,)
    assert group.properties["retentionInDays"] == settings_of(environment).network.flow_log_days


@every_environment
def test_the_default_security_group_has_no_rules(environment: str) -> None:
    group = graph(environment).find("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", "default").properties
    assert (group["ingress"], group["egress"]) == ([], [])


@pytest.mark.parametrize("direction", ["Ingress", "Egress"])
def test_the_efa_security_group_allows_all_traffic_among_its_members(direction: str) -> None:
    recording = graph("prod")
    group = recording.find(tokens.SECURITY_GROUP, "efa")
    rule = recording.find(f"aws:vpc/securityGroup{direction}Rule:SecurityGroup{direction}Rule", "efa")
    assert rule.properties["ipProtocol"] == "-1"
    assert rule.property_dependencies["securityGroupId"] == (group.urn,)
    assert rule.property_dependencies["referencedSecurityGroupId"] == (group.urn,)


@pytest.mark.parametrize(("name", "port"), [("efs", 2049), ("database", 5432)])
def test_a_store_allows_only_the_nodes_on_its_port(name: str, port: int) -> None:
    recording = graph("prod")
    rule = recording.find(tokens.INGRESS_RULE, name)
    assert (rule.properties["ipProtocol"], rule.properties["fromPort"], rule.properties["toPort"]) == (
        "tcp",
        port,
        port,
    )
    assert rule.property_dependencies["referencedSecurityGroupId"] == (
        recording.find("aws:eks/cluster:Cluster", "cluster").urn,
    )


@every_environment
def test_no_ingress_is_allowed_from_outside_the_vpc(environment: str) -> None:
    rules = graph(environment).of_type(tokens.INGRESS_RULE)
    ranges = {rule.properties["cidrIpv4"] for rule in rules if "cidrIpv4" in rule.properties}
    assert ranges == set(map(str, settings_of(environment).network.vpc_cidrs.values()))

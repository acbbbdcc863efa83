"""Security groups and availability zones."""

from __future__ import annotations

from collections.abc import Iterator

from infra.policy import tokens
from infra.policy.graph import Graph, Resource
from infra.policy.rule import Violation, resource_rule, stack_rule
from infra.spec.protection import EnvironmentKind

_WORLD = frozenset({"0.0.0.0/0", "::/0"})
_PEERS = ("cidrIpv4", "cidrIpv6", "referencedSecurityGroupId", "prefixListId")
_ALL_PROTOCOLS = "-1"


@resource_rule(tokens.INGRESS_RULE, tokens.SECURITY_GROUP, remedy="allow only the clients' security group or range")
def no_ingress_from_the_internet(resource: Resource) -> Iterator[str]:
    """No security group allows ingress from the internet, because the stack has no public service."""
    ranges = [resource.get("cidrIpv4"), resource.get("cidrIpv6")]
    for rule in resource.elements("ingress"):
        ranges += [*rule.get("cidrBlocks", ()), *rule.get("ipv6CidrBlocks", ())]
    yield from (f"allows {one}" for one in ranges if isinstance(one, str) and one in _WORLD)


@resource_rule(tokens.INGRESS_RULE, remedy="set protocol and ports, or refer to a security group")
def all_protocol_ingress_names_a_security_group(rule: Resource) -> Iterator[str]:
    """Only rules between members of a security group, as for EFA, may allow all protocols."""
    is_everything = str(rule.get("ipProtocol")) == _ALL_PROTOCOLS
    if is_everything and not rule.is_set("referencedSecurityGroupId"):
        peer = next((str(rule.get(peer)) for peer in _PEERS if rule.is_set(peer)), "no peer")
        yield f"allows every protocol from {peer}"


@resource_rule(tokens.SECURITY_GROUP, remedy="set description, and use rule resources instead of inline rules")
def security_groups_have_descriptions_and_no_inline_rules(group: Resource) -> Iterator[str]:
    """Security groups have a description and no inline rules, which conflict with rule resources."""
    if not group.is_set("description") or group.is_one_of("description", "Managed by Pulumi"):
        yield "has no description"
    yield from (f"has inline {side} rules" for side in ("ingress", "egress") if group.elements(side))


@resource_rule(tokens.LUSTRE, remedy="set security_group_ids to a group that only the nodes reach")
def lustre_has_a_security_group(file_system: Resource) -> Iterator[str]:
    """A security group limits who reaches a Lustre file system: whoever does can mount it."""
    if not file_system.is_set("securityGroupIds"):
        yield "uses the VPC's default security group"


@stack_rule(remedy="add the stack's EFA security group to the interfaces")
def efa_nodes_reach_each_other(graph: Graph) -> Iterator[Violation]:
    """EFA interfaces are in a security group that allows all traffic from itself; otherwise NCCL falls back to TCP."""
    open_to_self = {
        urn
        for rule in graph.of_type(tokens.INGRESS_RULE)
        if str(rule.get("ipProtocol")) == _ALL_PROTOCOLS
        for urn in rule.references.get("securityGroupId", frozenset())
        & rule.references.get("referencedSecurityGroupId", frozenset())
    }
    for template in graph.of_type(tokens.LAUNCH_TEMPLATE):
        interfaces = template.elements("networkInterfaces")
        if not any(str(one.get("interfaceType", "")).startswith("efa") for one in interfaces):
            continue
        if not template.references.get("networkInterfaces", frozenset()) & open_to_self:
            yield Violation(template, "has EFA interfaces in no security group that allows all traffic from itself")


@stack_rule(remedy="set network.nat: per_az")
def prod_survives_a_zone_failure(graph: Graph) -> Iterator[Violation]:
    """In prod every zone has a NAT gateway, and the database has a standby."""
    if graph.kind is not EnvironmentKind.PROD:
        return
    zones = {zone for subnet in graph.of_type(tokens.SUBNET) if isinstance(zone := subnet.get("availabilityZone"), str)}
    gateways = len(tuple(graph.of_type(tokens.NAT_GATEWAY)))
    if gateways < len(zones):
        yield Violation(None, f"has {gateways} NAT gateways for {len(zones)} zones, in prod")
    for database in graph.of_type(tokens.DATABASE):
        if not database.is_one_of("multiAz", True):
            yield Violation(database, "has no standby, in prod")

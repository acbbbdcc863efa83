"""What the security groups open, and what a lost zone takes along."""

from __future__ import annotations

from collections.abc import Iterator

from infra.policy import tokens
from infra.policy.graph import Graph, Subject
from infra.policy.rule import Breach, resource_rule, stack_rule
from infra.spec.protection import EnvironmentKind

_WORLD = frozenset({"0.0.0.0/0", "::/0"})
_PEERS = ("cidrIpv4", "cidrIpv6", "referencedSecurityGroupId", "prefixListId")
_ALL_PROTOCOLS = "-1"


@resource_rule(tokens.INGRESS_RULE, tokens.SECURITY_GROUP, remedy="name the security group or the range that connects")
def security_groups_admit_nobody_from_the_internet(subject: Subject) -> Iterator[str]:
    """No security group admits the whole internet to any port: nothing in this stack serves it."""
    ranges = [subject.get("cidrIpv4"), subject.get("cidrIpv6")]
    for rule in subject.each("ingress"):
        ranges += [*rule.get("cidrBlocks", ()), *rule.get("ipv6CidrBlocks", ())]
    yield from (f"admits {one}" for one in ranges if isinstance(one, str) and one in _WORLD)


@resource_rule(tokens.INGRESS_RULE, remedy="name protocol and ports, or refer to a security group")
def all_traffic_is_admitted_from_security_groups_only(rule: Subject) -> Iterator[str]:
    """All protocols at once are for EFA and for nodes among themselves, so they name a security group, never a range."""
    is_everything = str(rule.get("ipProtocol")) == _ALL_PROTOCOLS
    if is_everything and not rule.has("referencedSecurityGroupId"):
        peer = next((str(rule.get(peer)) for peer in _PEERS if rule.has(peer)), "nobody named")
        yield f"admits every protocol from {peer}"


@resource_rule(tokens.SECURITY_GROUP, remedy="set description, and make each opening a rule resource of its own")
def security_groups_say_what_they_are_for(group: Subject) -> Iterator[str]:
    """A security group has a description and no inline rules, which undo every rule made elsewhere."""
    if not group.has("description") or group.says("description", "Managed by Pulumi"):
        yield "has no description"
    yield from (f"has inline {side} rules" for side in ("ingress", "egress") if group.each(side))


@stack_rule(remedy="set efa: true in the settings only, or give the interface the stack's EFA security group")
def efa_reaches_its_peers(graph: Graph) -> Iterator[Breach]:
    """A node with EFA is in a security group that admits all traffic from itself, or NCCL falls back to TCP silently."""
    open_to_self = {
        urn
        for rule in graph.of(tokens.INGRESS_RULE)
        if str(rule.get("ipProtocol")) == _ALL_PROTOCOLS
        for urn in rule.references.get("securityGroupId", frozenset())
        & rule.references.get("referencedSecurityGroupId", frozenset())
    }
    for template in graph.of(tokens.LAUNCH_TEMPLATE):
        interfaces = template.each("networkInterfaces")
        if not any(str(one.get("interfaceType", "")).startswith("efa") for one in interfaces):
            continue
        if not template.references.get("networkInterfaces", frozenset()) & open_to_self:
            yield Breach(template, "its EFA interfaces are in no security group that admits all traffic from itself")


@stack_rule(remedy="set network.nat: per_az")
def prod_survives_the_loss_of_a_zone(graph: Graph) -> Iterator[Breach]:
    """In prod every zone with nodes has a NAT gateway of its own, and the database a standby."""
    if graph.kind is not EnvironmentKind.PROD:
        return
    zones = {zone for subnet in graph.of(tokens.SUBNET) if isinstance(zone := subnet.get("availabilityZone"), str)}
    gateways = len(tuple(graph.of(tokens.NAT_GATEWAY)))
    if gateways < len(zones):
        yield Breach(None, f"has {gateways} NAT gateways for {len(zones)} zones, in prod")
    for database in graph.of(tokens.DATABASE):
        if not database.says("multiAz", True):
            yield Breach(database, "has no standby, in prod")

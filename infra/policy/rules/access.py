"""Nothing can be reached from the internet that need not be."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network

from infra.policy import tokens
from infra.policy.graph import UNKNOWN, Graph, Subject
from infra.policy.rule import Breach, resource_rule, stack_rule
from infra.spec.protection import EnvironmentKind

_BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
_WIDEST = 8
"""Shortest prefix of a range that may reach an API server; the settings draw the same line."""


@stack_rule(remedy="give the bucket a BucketPublicAccessBlock with all four switches on")
def buckets_block_public_access(graph: Graph) -> Iterator[Breach]:
    """Every bucket blocks public access in all four ways, so that no later policy or ACL opens it."""
    for bucket in graph.of(tokens.BUCKET):
        blocks = tuple(graph.about(bucket, tokens.BUCKET_PUBLIC_ACCESS, "bucket"))
        if not any(all(block.says(switch, True) for switch in _BLOCKS) for block in blocks):
            yield Breach(bucket, "does not block public access in all four ways")


@stack_rule(remedy="give the bucket BucketOwnershipControls with BucketOwnerEnforced")
def buckets_have_no_acls(graph: Graph) -> Iterator[Breach]:
    """Every bucket owns what is written into it and knows no ACLs: who may read stands in one policy."""
    for bucket in graph.of(tokens.BUCKET):
        controls = graph.about(bucket, tokens.BUCKET_OWNERSHIP, "bucket")
        if not any(one.says("rule.objectOwnership", "BucketOwnerEnforced") for one in controls):
            yield Breach(bucket, "objectOwnership is not BucketOwnerEnforced")


@resource_rule(tokens.DATABASE, remedy="set publicly_accessible=False")
def databases_are_private(database: Subject) -> Iterator[str]:
    """A database has no public address."""
    if not database.says("publiclyAccessible", False, None):
        yield "publiclyAccessible is true"


@resource_rule(
    tokens.CLUSTER, remedy="turn the private endpoint on; in prod turn the public one off, elsewhere name offices"
)
def api_servers_are_not_open_to_the_world(cluster: Subject) -> Iterator[str]:
    """The API server is reached privately; prod has no public endpoint, elsewhere it admits named ranges only."""
    if not cluster.says("vpcConfig.endpointPrivateAccess", True):
        yield "has no private endpoint, so nodes reach the API server through the internet"
    if cluster.says("vpcConfig.endpointPublicAccess", False):
        return
    if cluster.kind is EnvironmentKind.PROD:
        yield "has a public endpoint, in prod"
    cidrs = cluster.each("vpcConfig.publicAccessCidrs")
    if not cidrs and cluster.get("vpcConfig.publicAccessCidrs") is not UNKNOWN:
        yield "has a public endpoint without publicAccessCidrs, which admits everybody"
    for cidr in cidrs:
        if ip_network(cidr).prefixlen < _WIDEST:
            yield f"its public endpoint admits {cidr}"


@resource_rule(tokens.SUBNET, remedy="leave map_public_ip_on_launch out, and give addresses to what needs them")
def subnets_hand_out_no_public_addresses(subnet: Subject) -> Iterator[str]:
    """No subnet hands out public addresses, so no node has one; what is public (NAT gateways) is given its own."""
    if not subnet.says("mapPublicIpOnLaunch", False, None):
        yield "mapPublicIpOnLaunch is true"

"""Public access: buckets, databases, the API server and subnets."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network

from infra.policy import tokens
from infra.policy.graph import UNKNOWN, Graph, Resource
from infra.policy.rule import Violation, resource_rule, stack_rule
from infra.spec.protection import EnvironmentKind

_PUBLIC_ACCESS_SETTINGS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
_MIN_PREFIX_LENGTH = 8
"""Shortest prefix of a range that may reach the API server, as in the settings' rules."""


@stack_rule(remedy="give the bucket a BucketPublicAccessBlock with all four settings enabled")
def buckets_block_public_access(graph: Graph) -> Iterator[Violation]:
    """Every bucket blocks public access, so that no later policy or ACL opens it."""
    for bucket in graph.of_type(tokens.BUCKET):
        blocks = tuple(graph.referring_to(bucket, tokens.BUCKET_PUBLIC_ACCESS, "bucket"))
        if not any(all(block.is_one_of(setting, True) for setting in _PUBLIC_ACCESS_SETTINGS) for block in blocks):
            yield Violation(bucket, "does not enable all four settings of the public access block")


@stack_rule(remedy="give the bucket BucketOwnershipControls with BucketOwnerEnforced")
def buckets_disable_acls(graph: Graph) -> Iterator[Violation]:
    """Every bucket owns its objects and disables ACLs, so that the bucket policy alone controls access."""
    for bucket in graph.of_type(tokens.BUCKET):
        controls = graph.referring_to(bucket, tokens.BUCKET_OWNERSHIP, "bucket")
        if not any(one.is_one_of("rule.objectOwnership", "BucketOwnerEnforced") for one in controls):
            yield Violation(bucket, "objectOwnership is not BucketOwnerEnforced")


@resource_rule(tokens.DATABASE, remedy="set publicly_accessible=False")
def databases_are_private(database: Resource) -> Iterator[str]:
    """Databases have no public address."""
    if not database.is_one_of("publiclyAccessible", False, None):
        yield "publiclyAccessible is true"


@resource_rule(tokens.LUSTRE, remedy="set root_squash_configuration to a user and a group other than root")
def lustre_squashes_root(file_system: Resource) -> Iterator[str]:
    """Root on a node has no rights in a Lustre file system, which authenticates no client."""
    squash = file_system.get("rootSquashConfiguration.rootSquash")
    if squash is not UNKNOWN and (not squash or "0" in str(squash).split(":")):
        yield f"rootSquash is {squash}"


@resource_rule(
    tokens.CLUSTER,
    remedy="enable the private endpoint; disable the public one in prod, set cluster.public_cidrs elsewhere",
)
def api_server_access_is_restricted(cluster: Resource) -> Iterator[str]:
    """The API server has a private endpoint; a public one is limited to named ranges, and not allowed in prod."""
    if not cluster.is_one_of("vpcConfig.endpointPrivateAccess", True):
        yield "has no private endpoint, so nodes reach the API server over the internet"
    if cluster.is_one_of("vpcConfig.endpointPublicAccess", False):
        return
    if cluster.kind is EnvironmentKind.PROD:
        yield "has a public endpoint, in prod"
    cidrs = cluster.elements("vpcConfig.publicAccessCidrs")
    if not cidrs and cluster.get("vpcConfig.publicAccessCidrs") is not UNKNOWN:
        yield "has a public endpoint without publicAccessCidrs, which allows every address"
    for cidr in cidrs:
        if ip_network(cidr).prefixlen < _MIN_PREFIX_LENGTH:
            yield f"has a public endpoint that allows {cidr}"


@resource_rule(tokens.SUBNET, remedy="remove map_public_ip_on_launch; use Elastic IPs where needed")
def subnets_assign_no_public_ips(subnet: Resource) -> Iterator[str]:
    """Subnets assign no public addresses, so that no node has one; NAT gateways use Elastic IPs."""
    if not subnet.is_one_of("mapPublicIpOnLaunch", False, None):
        yield "mapPublicIpOnLaunch is true"

"""What an existing VPC must have for the platform: one function for each rule, over facts that are read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from infra.lifecycle.existing.vpc import Subnet, Vpc
from infra.lifecycle.preflight.answer import Answer
from infra.spec.names import STACK_TAG, cluster_name, stack_tag
from infra.spec.settings.addresses import SHARED_ADDRESSES, node_addresses
from infra.spec.settings.loading import PROJECT
from infra.spec.settings.network import ExistingSubnet, ExistingVpc
from infra.spec.settings.stack import StackSettings

_KEY = "network.existing"
_SERVICES = ("ec2", "ecr.api", "ecr.dkr", "sts", "eks", "eks-auth", "autoscaling", "secretsmanager")
"""Services that nodes and the platform call in every environment. S3 is apart, because it may have a gateway endpoint.

Source: EKS user guide, "Deploy private clusters with limited internet access"; the autoscaler and MLflow's password are ours.
"""


def vpc_problems(settings: StackSettings, vpc: Vpc | None) -> Iterator[Answer]:
    """What keeps the platform out of the VPC; nothing where the stack makes its own.

    Args:
        settings: the environment.
        vpc: the VPC; None if it does not exist.
    """
    stated = settings.network.existing
    if stated is None:
        return
    if vpc is None:
        region = settings.aws.region
        yield (
            f"{_KEY}.vpc_id: the account has no VPC {stated.vpc_id} in {region}",
            "correct the ID, the account or the region",
        )
        return
    for rule in _RULES:
        yield from rule(settings, stated, vpc)


def vpc_notes(settings: StackSettings, vpc: Vpc | None) -> Iterator[str]:
    """What costs money or may surprise, and stops no deployment."""
    stated = settings.network.existing
    if stated is None or vpc is None:
        return
    for zone, id_, subnet in _private(stated, vpc):
        gateways = [one for one in vpc.endpoints if one.service == "s3" and one.is_gateway]
        if not any(subnet.table_id in one.table_ids for one in gateways):
            yield (
                f"subnet {id_} of {zone} has no route to a gateway endpoint for S3: checkpoints and images go through its default "
                "route, and a NAT gateway bills every GB; the endpoint is free"
            )
    for kind, role, subnets in (
        ("private", "internal-elb", stated.private_subnets),
        ("public", "elb", stated.public_subnets),
    ):
        tag = f"kubernetes.io/role/{role}"
        without = [one.id for one in subnets.values() if one.id in vpc.subnets and tag not in vpc.subnets[one.id].tags]
        if without and settings.single_sign_on is not None:
            yield f"load balancers do not find {kind} subnets without the tag {tag}: 1, which {', '.join(without)} lack"


def _ranges_are_those_of_the_vpc(_: StackSettings, stated: ExistingVpc, vpc: Vpc) -> Iterator[Answer]:
    """Rules about overlaps, and network policies, rely on them."""
    given = set(map(str, stated.cidrs))
    if given != vpc.cidrs:
        shown = ", ".join(sorted(vpc.cidrs))
        yield (
            f"{_KEY}.cidrs is {', '.join(sorted(given))}, VPC {stated.vpc_id} has {shown}",
            f"set {_KEY}.cidrs: [{shown}]",
        )


def _names_are_resolved(_: StackSettings, stated: ExistingVpc, vpc: Vpc) -> Iterator[Answer]:
    """Private names of the API server, of endpoints and of EFS need both (EKS user guide, "VPC requirements")."""
    for option, is_on in (("enable-dns-support", vpc.has_dns_support), ("enable-dns-hostnames", vpc.has_dns_hostnames)):
        if not is_on:
            yield (
                f"VPC {stated.vpc_id} has {option} off: nodes find neither the API server nor file systems by name",
                f"aws ec2 modify-vpc-attribute --vpc-id {stated.vpc_id} --{option}",
            )


def _subnets_are_as_stated(_: StackSettings, stated: ExistingVpc, vpc: Vpc) -> Iterator[Answer]:
    for kind, subnets in (("private_subnets", stated.private_subnets), ("public_subnets", stated.public_subnets)):
        for zone, subnet in subnets.items():
            yield from _differences(f"{_KEY}.{kind}.{zone}", zone, subnet, stated, vpc)


def _differences(key: str, zone: str, subnet: ExistingSubnet, stated: ExistingVpc, vpc: Vpc) -> Iterator[Answer]:
    found = vpc.subnets.get(subnet.id)
    if found is None:
        yield f"{key}: the account has no subnet {subnet.id} in this region", "correct the ID"
        return
    if found.vpc_id != stated.vpc_id:
        yield f"{key}: subnet {subnet.id} is in {found.vpc_id}, not in {stated.vpc_id}", "name a subnet of the VPC"
    if found.zone != zone:
        yield f"{key}: subnet {subnet.id} is in {found.zone}", f"name it below {found.zone}, or another subnet here"
    if found.cidr != str(subnet.cidr):
        yield f"{key}: subnet {subnet.id} has {found.cidr}, the settings {subnet.cidr}", f"set cidr: {found.cidr}"


def _private_subnets_lead_out(settings: StackSettings, stated: ExistingVpc, vpc: Vpc) -> Iterator[Answer]:
    """Nodes pull images and call AWS; they have no public address, so an internet gateway serves none of them."""
    for zone, id_, subnet in _private(stated, vpc):
        route, what = subnet.default_route, f"subnet {id_} of {zone}"
        table = f"its route table {subnet.table_id}" if subnet.table_id else "the VPC's main route table"
        if route is None:
            yield from _without_route(settings, what, subnet, vpc)
        elif route.is_blackhole:
            yield f"{what}: the default route of {table} leads to {route.target}, which is gone", "correct the route"
        elif route.target.startswith("igw-"):
            yield (
                f"{what} is public: the default route of {table} leads to {route.target}, and nodes have no public address",
                "name a private subnet, or lead its default route to a NAT gateway or a transit gateway",
            )


def _public_subnets_lead_to_the_internet(_: StackSettings, stated: ExistingVpc, vpc: Vpc) -> Iterator[Answer]:
    """A load balancer of single sign-on has its public addresses there."""
    for zone, id_, subnet in _known(stated.public_subnets, stated, vpc):
        route = subnet.default_route
        if route is None or route.is_blackhole or not route.target.startswith("igw-"):
            leads = (
                "has no default route"
                if route is None
                else f"has no default route to an internet gateway, but to {route.target}"
            )
            yield (
                f"{_KEY}.public_subnets.{zone}: subnet {id_} {leads}: a load balancer in it cannot be reached",
                "name a public subnet, or correct its route",
            )


def _without_route(settings: StackSettings, what: str, subnet: Subnet, vpc: Vpc) -> Iterator[Answer]:
    """A closed subnet: every service that is called has an endpoint, and charts and images come from a mirror."""
    needed = [*_SERVICES, *(["logs"] if settings.logs.destination == "cloudwatch" else [])]
    needed += ["sns"] if settings.monitoring.alert_email is not None else []
    inside = {one.service for one in vpc.endpoints if not one.is_gateway and one.has_private_dns}
    missing = [service for service in needed if service not in inside]
    has_gateway = any(
        one.service == "s3" and subnet.table_id in one.table_ids for one in vpc.endpoints if one.is_gateway
    )
    missing += [] if has_gateway or "s3" in inside else ["s3"]
    if missing:
        yield (
            f"{what} has no default route, and the VPC no endpoint with private DNS for {', '.join(missing)}",
            "add a route to a NAT gateway or a transit gateway, or these endpoints (for s3, a gateway endpoint is free)",
        )
    if settings.mirrors.images is None:
        yield (
            f"{what} has no default route, and images come from public registries",
            "set mirrors.images to a registry that the VPC reaches, or add a route",
        )


def _subnets_have_free_addresses(settings: StackSettings, stated: ExistingVpc, vpc: Vpc) -> Iterator[Answer]:
    """What the nodes and file servers need at max_size, less what the stack's nodes have already."""
    needed = node_addresses(settings)
    for zone, id_, subnet in _private(stated, vpc):
        more = needed[zone] - subnet.ours + (0 if subnet.ours else SHARED_ADDRESSES)
        if more > subnet.free:
            pods = f"at network.pods_per_node = {settings.network.pods_per_node}"
            yield (
                f"subnet {id_} of {zone} has {subnet.free} free addresses, the groups at max_size need {more} more {pods}",
                "name a larger or emptier subnet, or lower max_size or pods_per_node",
            )


def _nothing_belongs_to_another_owner(settings: StackSettings, stated: ExistingVpc, vpc: Vpc) -> Iterator[Answer]:
    """A VPC of another stack is destroyed with it, see `place` for one of this stack; a cluster of our name has its nodes already."""
    named: list[tuple[str, Mapping[str, str]]] = [(f"VPC {stated.vpc_id}", vpc.tags)]
    named += [(f"subnet {id_}", subnet.tags) for id_, subnet in vpc.subnets.items()]
    for what, tags in named:
        owner = tags.get(STACK_TAG, "")
        if owner.startswith(f"{PROJECT}/") and owner != stack_tag(settings):
            yield (
                f"{what} belongs to stack {owner}, which deletes it when it is destroyed",
                "name a VPC that no stack has made",
            )
    cluster = cluster_name(settings)
    tag = f"kubernetes.io/cluster/{cluster}"
    if settings.cluster.existing is None:
        taken = [what for what, tags in named if tags.get(tag) == "owned"]
        if taken:
            yield (
                f"{', '.join(taken)}: owned by another cluster {cluster}, by the tag {tag}",
                "choose another environment.name, or remove the tag if that cluster is gone",
            )


def _private(stated: ExistingVpc, vpc: Vpc) -> Iterator[tuple[str, str, Subnet]]:
    """Zone, ID and facts of each private subnet that the VPC has."""
    yield from _known(stated.private_subnets, stated, vpc)


def _known(subnets: Mapping[str, ExistingSubnet], stated: ExistingVpc, vpc: Vpc) -> Iterator[tuple[str, str, Subnet]]:
    """Those in the VPC: routes of a subnet in another one are not known, and its problem is that it is there."""
    for zone, subnet in subnets.items():
        found = vpc.subnets.get(subnet.id)
        if found is not None and found.vpc_id == stated.vpc_id:
            yield zone, subnet.id, found


_RULES: tuple[Callable[[StackSettings, ExistingVpc, Vpc], Iterator[Answer]], ...] = (
    _ranges_are_those_of_the_vpc,
    _names_are_resolved,
    _subnets_are_as_stated,
    _private_subnets_lead_out,
    _public_subnets_lead_to_the_internet,
    _subnets_have_free_addresses,
    _nothing_belongs_to_another_owner,
)

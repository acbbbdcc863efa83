"""Where the resources of a live stack are, by their tags, and whether its settings still say so.

The program would carry out a change between a VPC or cluster of its own and an existing one: it would delete the one and move into the
other. Nothing that runs, and no database, survives that, so the preflight refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infra.lifecycle.account.aws import Client, Session
from infra.lifecycle.existing.requests import RETRIES, pages, tags_of
from infra.lifecycle.preflight.answer import Answer
from infra.spec.names import STACK_TAG, cluster_name, stack_tag
from infra.spec.settings.stack import StackSettings

_OWNED_BY_CLUSTER = "kubernetes.io/cluster/"
"""Beginning of the tag that EKS gives a node, before the cluster's name."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a stack is; nowhere before its first update.

    Attributes:
        made_vpcs: VPCs that the stack has made, with the range of each.
        vpcs: VPCs of its security groups, of which every stack has some.
        clusters: clusters of its nodes.
    """

    made_vpcs: Mapping[str, str]
    vpcs: frozenset[str]
    clusters: frozenset[str]


def read_place(settings: StackSettings, session: Session) -> Place:
    """Where the stack of an environment is.

    Raises:
        BotoCoreError: AWS does not answer.
        ClientError: AWS refuses the request.
    """
    ec2 = session.client("ec2", config=RETRIES)
    ours = {f"tag:{STACK_TAG}": [stack_tag(settings)]}
    return Place(
        made_vpcs={one["VpcId"]: one["CidrBlock"] for one in pages(ec2, "describe_vpcs", "Vpcs", ours)},
        vpcs=frozenset(one["VpcId"] for one in pages(ec2, "describe_security_groups", "SecurityGroups", ours)),
        clusters=frozenset(_clusters(ec2, ours)),
    )


def _clusters(ec2: Client, ours: Mapping[str, list[str]]) -> Iterator[str]:
    alive = {**ours, "instance-state-name": ["pending", "running", "stopping", "stopped"]}
    for reservation in pages(ec2, "describe_instances", "Reservations", alive):
        for instance in reservation["Instances"]:
            found = (key for key in tags_of(instance) if key.startswith(_OWNED_BY_CLUSTER))
            yield from (key.removeprefix(_OWNED_BY_CLUSTER) for key in found)


def moves(settings: StackSettings, place: Place, *, owner: str | None) -> Iterator[Answer]:
    """What an update would leave for another VPC or cluster.

    Args:
        settings: the environment.
        place: where its stack is.
        owner: value of the tag `stack` of the cluster that the settings name, empty without one; None if there is no such cluster.
    """
    name = settings.environment.name
    remedy = (
        f"undo the change of the settings; to move, bring up another environment there and take {name} down. If {name} is gone "
        f"already, `make leaks ENV={name}` names what is left"
    )
    yield from ((message, remedy) for message in _vpc_moves(settings, place))
    wanted = cluster_name(settings)
    for cluster in sorted(place.clusters - {wanted}):
        what = f"the nodes of stack {name} are in cluster {cluster}, the settings say {wanted}"
        yield f"{what}: an update would replace all node groups, and everything that is on the cluster", remedy
    yield from _taken_names(settings, owner)


def _vpc_moves(settings: StackSettings, place: Place) -> Iterator[str]:
    name, stated = settings.environment.name, settings.network.existing
    if stated is None:
        for vpc, cidr in sorted(place.made_vpcs.items()):
            if cidr != str(settings.network.cidr):
                yield (
                    f"stack {name} has made VPC {vpc} with the range {cidr}, and network.cidr is {settings.network.cidr}: an update would "
                    "make another VPC, in which neither the cluster nor the database can move"
                )
        for vpc in sorted(place.vpcs - place.made_vpcs.keys()):
            yield (
                f"stack {name} is in the existing VPC {vpc}, and the settings have no network.existing: an update would make a VPC, and "
                "delete or replace what the stack has in that one"
            )
        return
    for vpc in sorted(place.made_vpcs):
        yield (
            f"stack {name} has made VPC {vpc}, and network.existing.vpc_id is {stated.vpc_id}: an update would delete that VPC, and "
            "delete or replace what is in it"
        )
    for vpc in sorted(place.vpcs - place.made_vpcs.keys() - {stated.vpc_id}):
        yield (
            f"stack {name} is in VPC {vpc}, and network.existing.vpc_id is {stated.vpc_id}: an update would delete or replace what the "
            "stack has there"
        )


def _taken_names(settings: StackSettings, owner: str | None) -> Iterator[Answer]:
    """A new cluster needs a name that no other cluster has; an existing one must not go away with a stack."""
    wanted, ours = cluster_name(settings), stack_tag(settings)
    if settings.cluster.existing is None:
        if owner is not None and owner != ours:
            yield (
                f"the account has a cluster {wanted} that is not the stack's{f', but of stack {owner}' * bool(owner)}",
                "choose another environment.name, or delete that cluster; to use it, set cluster.existing",
            )
    elif owner:
        yield (
            f"cluster {wanted} belongs to stack {owner}, which deletes it when it is destroyed",
            "name a cluster that no stack has made",
        )

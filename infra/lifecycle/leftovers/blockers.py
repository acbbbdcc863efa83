"""What keeps a stack's network, and is not the stack's: the interfaces that others have in its VPC."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.leftovers.found import Key, Place
from infra.lifecycle.leftovers.kind import pages
from infra.lifecycle.leftovers.kinds.network import VPC


class Blocker(NamedTuple):
    """A network interface that is in use.

    Attributes:
        id: its ID.
        user: who uses it, as far as EC2 says.
    """

    id: str
    user: str


def blockers(clients: Clients, known: Iterable[Key]) -> Iterator[Blocker]:
    """The interfaces in use in a stack's VPCs.

    Args:
        clients: clients of the account.
        known: the stack's resources.

    Raises:
        BotoCoreError, ClientError: they cannot be listed.
    """
    for vpc in sorted(key for key in known if key.kind == VPC):
        filters = [{"Name": "vpc-id", "Values": [vpc.id]}]
        ec2 = Place(clients, vpc.region).client("ec2")
        for one in pages(ec2, "describe_network_interfaces", "NetworkInterfaces", Filters=filters):
            if one["Status"] == "in-use":
                yield Blocker(one["NetworkInterfaceId"], _user(one))


def _user(interface: dict[str, Any]) -> str:
    """The instance, or what the service that made the interface wrote about it."""
    attachment = interface.get("Attachment") or {}
    said = (attachment.get("InstanceId"), interface.get("Description"), attachment.get("InstanceOwnerId"))
    return next((str(one) for one in said if one), "somebody unknown")

"""Deletes network interfaces that the VPC CNI leaves when its nodes end: they keep their security groups and subnets."""

from __future__ import annotations

from collections.abc import Callable

from botocore.exceptions import BotoCoreError, ClientError

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.leftovers.found import Found, Place
from infra.lifecycle.leftovers.inventory import KINDS, take
from infra.lifecycle.leftovers.kinds.network import SECURITY_GROUP, VPC
from infra.lifecycle.leftovers.ownership import StackName, owned
from infra.lifecycle.leftovers.refusals import is_gone, reason

INTERFACE = "network interface"


def delete_interfaces(clients: Clients, region: str, stack: StackName, *, say: Callable[[str], None]) -> int:
    """Delete the stack's network interfaces that nothing uses; returns how many.

    Args:
        clients: clients of the account.
        region: the stack's region.
        stack: the stack.
        say: prints a line about each that AWS keeps.
    """
    found, unknown = take(clients, (region,), (KINDS[INTERFACE], KINDS[SECURITY_GROUP], KINDS[VPC]))
    for one in unknown:
        say(f"note: {one}")
    ours = [one for one, _ in owned(found, stack).values() if one.kind == INTERFACE]
    return sum(_is_deleted(one, Place(clients, region), say=say) for one in ours)


def _is_deleted(one: Found, place: Place, *, say: Callable[[str], None]) -> bool:
    try:
        for call in KINDS[INTERFACE].remove(one, place):
            call.run(place)
    except (BotoCoreError, ClientError) as error:
        if not is_gone(error):
            say(f"note: {INTERFACE} {one.label}: {reason(error)}")
        return False
    return True

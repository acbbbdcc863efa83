"""A kind of resource: how it is found and removed, what it costs, and when its turn comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from infra.lifecycle.account.aws import Client
from infra.lifecycle.leftovers.found import Call, Found, Place
from infra.spec.catalog import Catalog
from infra.spec.cost import HOURS_PER_MONTH

Item = TypeVar("Item")


class Phase(IntEnum):
    """Turns of a removal, in order: what makes other resources goes before them, what uses others before those.

    Databases and file systems precede the network, whose subnets and security groups their interfaces use.
    """

    NODE_GROUPS = 10
    SCALING_GROUPS = 11
    INSTANCES = 12
    CLUSTER = 13
    LOAD_BALANCERS = 14
    TARGET_GROUPS = 15
    STORES = 16
    FILE_SYSTEMS = 17

    NAT_GATEWAYS = 20
    ADDRESSES = 21
    INTERFACES = 22
    ENDPOINTS = 23
    SECURITY_GROUPS = 24
    SUBNETS = 25
    VPC = 26

    VOLUMES = 30
    SNAPSHOTS = 31
    TEMPLATES = 32
    CONTENT = 33
    MESSAGES = 34
    VAULTS = 35
    KEYS = 36
    PROFILES = 37
    ROLES = 38
    BUDGET = 39

    @property
    def stage(self) -> Stage:
        """The stage that it is a part of."""
        return Stage(self // 10)


class Stage(IntEnum):
    """Phases that need each other. One that does not end keeps the rest of its stage."""

    COMPUTE = 1
    NETWORK = 2
    REST = 3


Price = Callable[[Found, Catalog], float | None]
"""US dollars per hour of a resource; None if the price table does not know it."""


def free(_: Found, __: Catalog) -> float:
    """The price of what costs nothing."""
    return 0.0


def unknown(_: Found, __: Catalog) -> None:
    """The price of what the table has no price of, or what is billed by use."""


def no_calls(_: Found, __: Place) -> Iterator[Call]:
    """No preparation."""
    return iter(())


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of resource.

    Attributes:
        name: as users call one.
        phase: its turn in a removal.
        find: lists all resources of the kind in a region, whoever they belong to, but those that AWS itself made.
        remove: yields the calls that remove one, in order; reads what they need when it is asked for the next.
        reads: IAM actions of `find`, and of what `remove` and `prepare` read.
        writes: IAM actions of the calls.
        price: what one costs.
        prepare: calls to make for all resources of the kind before the first is removed.
        by_hand: the command for a person, where `remove` loses data that a person may want, or needs too many calls.
        is_global: whether the account has it rather than a region.
    """

    name: str
    phase: Phase
    find: Callable[[Place], Iterator[Found]]
    remove: Callable[[Found, Place], Iterator[Call]]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    price: Price = free
    prepare: Callable[[Found, Place], Iterator[Call]] = no_calls
    by_hand: Callable[[Found], str] | None = None
    is_global: bool = False

    def commands(self, found: Found, place: Place) -> Commands:
        """The commands that remove a resource.

        Raises:
            BotoCoreError, ClientError: what they depend on cannot be read.
        """
        prepare = _joined(self.prepare(found, place), found.region)
        if self.by_hand is not None:
            return Commands(prepare, self.by_hand(found))
        return Commands(prepare, _joined(self.remove(found, place), found.region))


class Commands(NamedTuple):
    """Commands for a person.

    Attributes:
        prepare: what comes before the first removal of the kind; empty for most kinds.
        remove: what removes the resource.
    """

    prepare: str
    remove: str


def _joined(calls: Iterable[Call], region: str) -> str:
    """The calls in one line. Each is made whatever became of the one before, which may have been done already."""
    return "; ".join(call.command(region) for call in calls)


def pages(client: Client, operation: str, key: str, **parameters: object) -> Iterator[Any]:
    """Every item under `key` of all pages of an operation, by its name in boto3."""
    if client.can_paginate(operation):
        answers = client.get_paginator(operation).paginate(**parameters)
    else:
        answers = iter((getattr(client, operation)(**parameters),))
    for answer in answers:
        yield from answer.get(key) or ()


def tags_in(pairs: object, *, key: str = "Key", value: str = "Value") -> Mapping[str, str]:
    """Tags by key, of a list of pairs as most services return it; empty for None."""
    assert pairs is None or isinstance(pairs, list), pairs
    return {str(pair[key]): str(pair.get(value, "")) for pair in pairs or ()}


def one_call(service: str, operation: str, parameter: str) -> Callable[[Found, Place], Iterator[Call]]:
    """A removal with one call that takes the ID."""

    def remove(found: Found, _: Place) -> Iterator[Call]:
        yield Call(service, operation, {parameter: found.id})

    return remove


def actions(service: str, names: str) -> tuple[str, ...]:
    """IAM actions of a service: `actions("ec2", "DescribeVolumes DeleteVolume")`."""
    return tuple(f"{service}:{name}" for name in names.split())


def monthly(usd: float | None, units: float) -> float | None:
    """US dollars per hour of `units` that have a price per month."""
    return None if usd is None else usd * units / HOURS_PER_MONTH


def batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """The items in lists of at most `size`."""
    return (items[first : first + size] for first in range(0, len(items), size))

"""Everything that an account has of the kinds that bill or block a teardown, and what could not be listed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.leftovers.found import GLOBAL_REGION, Found, Place
from infra.lifecycle.leftovers.kind import Kind, Phase, Stage
from infra.lifecycle.leftovers.kinds import (
    balancing,
    compute,
    content,
    databases,
    file_systems,
    identity,
    messages,
    network,
)
from infra.lifecycle.leftovers.refusals import AWS_ERRORS, reason

_MODULES = (compute, balancing, databases, file_systems, network, content, messages, identity)
KINDS: dict[str, Kind] = {kind.name: kind for module in _MODULES for kind in module.KINDS}
"""Every kind, by name."""

_REQUESTS_AT_ONCE = 8
"""Kinds listed at once: more of them meet the services' rate limits."""


class NotAudited(NamedTuple):
    """A kind that could not be listed, so that it is not known what there is.

    Attributes:
        kind: name of the kind.
        region: region it was looked for in.
        reason: what AWS said.
    """

    kind: str
    region: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.region}: {self.reason}"


class Inventory(NamedTuple):
    """What was found.

    Attributes:
        found: resources, in the order of their phases; of a kind that was not listed to its end, those before.
        not_audited: kinds that could not be listed.
    """

    found: tuple[Found, ...]
    not_audited: tuple[NotAudited, ...]


def kinds_until(phase: Phase) -> tuple[Kind, ...]:
    """Kinds whose turn this is, and those that need to be gone for it; of the stage that needs no order, only the first."""
    if phase.stage is Stage.REST:
        return tuple(kind for kind in KINDS.values() if kind.phase is phase)
    return tuple(kind for kind in KINDS.values() if kind.phase.stage is phase.stage and kind.phase <= phase)


def take(clients: Clients, regions: Sequence[str], kinds: Iterable[Kind] = tuple(KINDS.values())) -> Inventory:
    """List all resources of some kinds, by default of all.

    Args:
        clients: clients of the account.
        regions: regions to look in; what the account has as a whole is listed once.
        kinds: the kinds.
    """
    ordered = sorted(kinds, key=lambda kind: kind.phase)
    tasks = [(kind, region) for kind in ordered for region in ((GLOBAL_REGION,) if kind.is_global else regions)]
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        answers = list(pool.map(lambda task: _list(task[0], Place(clients, task[1])), tasks))
    found = tuple(one for some, _ in answers for one in sorted(some, key=lambda one: one.id))
    return Inventory(found, tuple(refused for _, refused in answers if refused is not None))


def _list(kind: Kind, place: Place) -> tuple[list[Found], NotAudited | None]:
    found: list[Found] = []
    try:
        for one in kind.find(place):
            parents, holds = (
                tuple(key._replace(region=place.region) for key in keys) for keys in (one.parents, one.holds)
            )
            found.append(replace(one, kind=kind.name, region=place.region, parents=parents, holds=holds))
    except AWS_ERRORS as error:
        return found, NotAudited(kind.name, place.region, reason(error))
    return found, None

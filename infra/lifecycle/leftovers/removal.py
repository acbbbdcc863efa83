"""Removes a stack's resources phase by phase, until a fresh look finds none of them.

Every round lists what is there. So a removal that was interrupted continues where it is, and a second one beside it finds less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from botocore.exceptions import ClientError

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.leftovers.blockers import blockers
from infra.lifecycle.leftovers.expiry import parse_expiry
from infra.lifecycle.leftovers.found import Call, Found, Key, Place
from infra.lifecycle.leftovers.inventory import KINDS, NotAudited, kinds_until, take
from infra.lifecycle.leftovers.keeping import reason_to_keep
from infra.lifecycle.leftovers.kind import Phase, Stage
from infra.lifecycle.leftovers.ownership import StackName, owned
from infra.lifecycle.leftovers.refusals import AWS_ERRORS, is_busy, is_gone, reason
from infra.spec.errors import RefusedError
from infra.spec.names import EXPIRES_TAG
from infra.spec.protection import EnvironmentKind

PAUSE_SECONDS = 15.0
"""Time between two rounds: deleting a node group or a cluster takes minutes, a NAT gateway about one."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long a removal waits.

    Attributes:
        limit: seconds after which a phase that does not end is given up.
        wait: waits for some seconds.
        clock: seconds on a clock that never goes back.
    """

    limit: float
    wait: Callable[[float], object]
    clock: Callable[[], float]


class Remaining(NamedTuple):
    """A resource that is not removed, or a kind that could not be listed.

    Attributes:
        what: kind and ID.
        reason: what AWS said last; empty if the removal has begun and did not end in time.
    """

    what: str
    reason: str

    def __str__(self) -> str:
        return f"{self.what}: {self.reason or 'is still being deleted'}"


class _Hindrance(NamedTuple):
    """Why a resource was not removed, and whether the same call would fail again."""

    says: str
    is_final: bool


class _UnknownError(Exception):
    """Some kinds could not be listed, so that it is not known whether a phase is over."""

    def __init__(self, kinds: tuple[NotAudited, ...]) -> None:
        super().__init__(kinds)
        self.kinds = kinds


@dataclass(frozen=True, kw_only=True)
class Removal:
    """The removal of one stack.

    Attributes:
        stack: the stack.
        clients: clients of its account.
        regions: regions that it has resources in.
        pace: how long it waits.
        now: the time, with its zone.
        say: reports progress.
        known: resources of the stack in the inventory that it was found in. Parts are removed before what they are a part of, and only
            that says whose they are.
    """

    stack: StackName
    clients: Clients
    regions: tuple[str, ...]
    pace: Pace
    now: Callable[[], datetime]
    say: Callable[[str], object]
    known: frozenset[Key]

    def run(self) -> tuple[Remaining, ...]:
        """Remove everything; returns what is left. A phase that does not end keeps what depends on its end.

        Raises:
            RefusedError: the stack's expiry was moved meanwhile.
        """
        remaining: list[Remaining] = []
        for stage, phases in groupby(Phase, key=lambda phase: phase.stage):
            for phase in phases:
                stuck = self._finish(phase)
                remaining += stuck
                if stuck and stage is Stage.NETWORK:
                    remaining += self._blockers()
                if stuck and stage is not Stage.REST:
                    break
            if remaining and stage is Stage.COMPUTE:
                break
        return tuple(remaining)

    def _finish(self, phase: Phase) -> list[Remaining]:
        """Remove what a phase is about, round by round; returns what is left of it."""
        hindrances: dict[Key, _Hindrance] = {}
        deadline, is_first = self.pace.clock() + self.pace.limit, True
        try:
            ours = self._look(phase)
            while open_ := [one for one in ours if not _is_final(hindrances.get(one.key))]:
                if not is_first:
                    if self.pace.clock() >= deadline:
                        break
                    self._report(open_, hindrances)
                    self.pace.wait(PAUSE_SECONDS)
                hindrances |= self._round(open_)
                ours, is_first = self._look(phase), False
        except _UnknownError as error:
            return [Remaining(f"{one.kind} in {one.region}", one.reason) for one in error.kinds]
        return [Remaining(f"{one.kind} {one.label}", _says(hindrances.get(one.key))) for one in ours]

    def _blockers(self) -> list[Remaining]:
        """Who else uses the network."""
        try:
            found = [*blockers(self.clients, self.known)]
        except AWS_ERRORS:
            return []
        return [
            Remaining(f"network interface {one.id}", f"{one.user} uses it, and is not the stack's") for one in found
        ]

    def _look(self, phase: Phase) -> list[Found]:
        """The stack's resources of a phase, as they are now, and of the earlier ones of its stage.

        These were gone, but more may come: an interface is unused only minutes after its instance has ended, and an Auto Scaling
        group may have been about to start one.
        """
        found, unknown = take(self.clients, self.regions, kinds_until(phase))
        if unknown:
            raise _UnknownError(unknown)
        ours = [one for one, _ in owned(found, self.stack, known=self.known).values()]
        self._check_expiry(ours)
        return [one for one in ours if reason_to_keep(one, EnvironmentKind.TEST) is None]

    def _check_expiry(self, ours: Iterable[Found]) -> None:
        for one in ours:
            expires = parse_expiry(one.tags.get(EXPIRES_TAG, ""))
            if expires is not None and expires > self.now():
                raise RefusedError(
                    f"{self.stack.environment}: {one.kind} {one.label} now expires at {expires.isoformat()}",
                    remedy="somebody has prolonged the stack: bring it up again with `make up`, or destroy it",
                )

    def _round(self, open_: Iterable[Found]) -> dict[Key, _Hindrance]:
        """Ask AWS to remove what is not going yet; returns what keeps the others."""
        idle = [one for one in open_ if not one.is_going]
        for one in idle:
            self._make(one, KINDS[one.kind].prepare)
        hindrances: dict[Key, _Hindrance] = {}
        for one in idle:
            hindrance = self._make(one, KINDS[one.kind].remove)
            if hindrance is not None:
                hindrances[one.key] = hindrance
            else:
                self.say(f"{self.stack.environment}: deleted {one.kind} {one.label}")
        return hindrances

    def _make(self, one: Found, calls: Callable[[Found, Place], Iterator[Call]]) -> _Hindrance | None:
        """Make the calls about a resource. What is gone already, by another reaper for example, is done."""
        place = Place(self.clients, one.region)
        try:
            for call in calls(one, place):
                try:
                    call.run(place)
                except ClientError as error:
                    if not is_gone(error):
                        raise
        except AWS_ERRORS as error:
            return None if is_gone(error) else _Hindrance(reason(error), not is_busy(error))
        return None

    def _report(self, open_: Iterable[Found], hindrances: dict[Key, _Hindrance]) -> None:
        counts = Counter(one.kind for one in open_)
        waited = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        because = sorted({_says(hindrances.get(one.key)) for one in open_} - {""})
        self.say(f"{self.stack.environment}: waiting for {waited}{': ' if because else ''}{'; '.join(because[:2])}")


def _is_final(hindrance: _Hindrance | None) -> bool:
    return hindrance is not None and hindrance.is_final


def _says(hindrance: _Hindrance | None) -> str:
    return "" if hindrance is None else hindrance.says

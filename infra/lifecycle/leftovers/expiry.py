"""Which test stacks an account has, and which of them may be removed: a pure function of tags and time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from infra.lifecycle.leftovers.found import Found, Key
from infra.lifecycle.leftovers.keeping import reason_to_keep
from infra.lifecycle.leftovers.ownership import StackName, environments_named_by, owned
from infra.spec.names import EXPIRES_TAG, KIND_TAG, PLATFORM_TAG, STACK_TAG, TEST_PREFIX
from infra.spec.protection import EnvironmentKind
from infra.spec.settings.loading import PROJECT


class Standing(StrEnum):
    """What the tags say about the end of a stack."""

    LIVE = "live"
    EXPIRED = "expired"
    NO_EXPIRY = "no expiry"
    UNREADABLE_EXPIRY = "unreadable expiry"
    CONTRADICTORY = "contradictory kinds"
    ELSEWHERE = "in other regions too"


ORPHANED = frozenset({Standing.NO_EXPIRY, Standing.UNREADABLE_EXPIRY})
"""Stacks that nobody can say the end of: removed only if they are named."""


@dataclass(frozen=True, kw_only=True)
class TestStack:
    """A stack that says that it is a test cluster.

    Attributes:
        name: what identifies it.
        standing: whether it may be removed.
        says: its expiry, as its tags have it.
        owner: its owner, as its tags have it.
        found: its resources, in the order of their phases.
    """

    __test__ = False  # not a class of tests, in spite of its name

    name: StackName
    standing: Standing
    says: str
    owner: str
    found: Mapping[Key, Found]


def find_test_stacks(found: Iterable[Found], *, account: str, now: datetime) -> tuple[TestStack, ...]:
    """The test stacks among an account's resources, by name.

    Args:
        found: everything that was found.
        account: the account.
        now: the time, with its zone.
    """
    everything = tuple(found)
    tagged: dict[StackName, list[Mapping[str, str]]] = {}
    for one in everything:
        if one.tags.get(PLATFORM_TAG) == PROJECT:
            name = StackName.of_tag(one.tags.get(STACK_TAG, ""), account=account)
            if name is not None:
                tagged.setdefault(name, []).append(one.tags)
    of_test = {name: tags for name, tags in tagged.items() if EnvironmentKind.TEST in _values(tags, KIND_TAG)}
    stacks = [_stack(name, tags, everything, now) for name, tags in of_test.items()]
    named = {StackName(name, account) for one in everything for name in environments_named_by(one)}
    stacks += [_remains(name, everything) for name in named - set(tagged) if name.environment.startswith(TEST_PREFIX)]
    return tuple(sorted((one for one in stacks if one.found), key=lambda one: one.name.environment))


def _remains(name: StackName, found: Iterable[Found]) -> TestStack:
    """What is left of a test cluster whose tagged resources are gone: nothing says when it expires."""
    ours = _removable(found, name)
    kinds = _values((one.tags for one in ours.values()), KIND_TAG)
    is_test = set(kinds) <= {EnvironmentKind.TEST.value}
    return TestStack(
        name=name,
        standing=Standing.NO_EXPIRY if is_test else Standing.CONTRADICTORY,
        says="what had its tags is gone" if is_test else f"kind {' and '.join(kinds)}",
        owner="unknown",
        found=ours,
    )


def _stack(name: StackName, tags: list[Mapping[str, str]], found: Iterable[Found], now: datetime) -> TestStack:
    standing, says = _standing(tags, now)
    return TestStack(
        name=name,
        standing=standing,
        says=says,
        owner=", ".join(_values(tags, "owner")) or "unknown",
        found=_removable(found, name),
    )


def _removable(found: Iterable[Found], name: StackName) -> Mapping[Key, Found]:
    """The stack's resources but for those that outlive a test cluster on purpose."""
    ours = ((key, one) for key, (one, _) in owned(found, name).items())
    return {key: one for key, one in ours if reason_to_keep(one, EnvironmentKind.TEST) is None}


def _standing(tags: list[Mapping[str, str]], now: datetime) -> tuple[Standing, str]:
    """The standing, and what the tags say. A stack whose expiry was moved has nodes with the earlier one: the latest counts."""
    kinds, expiries = _values(tags, KIND_TAG), _values(tags, EXPIRES_TAG)
    if set(kinds) != {EnvironmentKind.TEST.value}:
        return Standing.CONTRADICTORY, f"kind {' and '.join(kinds)}"
    if not expiries:
        return Standing.NO_EXPIRY, ""
    times = [parse_expiry(text) for text in expiries]
    known = [time for time in times if time is not None]
    if len(known) < len(times):
        return Standing.UNREADABLE_EXPIRY, ", ".join(expiries)
    latest = max(known)
    return Standing.EXPIRED if latest <= now else Standing.LIVE, latest.isoformat()


def parse_expiry(text: str) -> datetime | None:
    """The time in a tag `expires`; None if it is not one, or has no zone: it may be meant hours later."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def _values(tags: Iterable[Mapping[str, str]], key: str) -> list[str]:
    """All values of a tag, each once, sorted."""
    return sorted({one[key] for one in tags if key in one})

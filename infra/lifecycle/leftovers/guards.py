"""Where the reaper works, and which stacks it never touches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from infra.lifecycle.leftovers.expiry import ORPHANED, Standing, TestStack
from infra.spec.errors import RefusedError, SettingsError
from infra.spec.protection import EnvironmentKind
from infra.spec.settings import StackSettings


def check_place(
    account: str, *, wanted: str | None, needs_account: bool, environments: Iterable[StackSettings]
) -> None:
    """Refuse an account that is not the one meant, or that a production environment may be in.

    Args:
        account: the account of the credentials.
        wanted: the account that the user names; None if none is named.
        needs_account: whether one has to be named, because nobody is asked.
        environments: the environments of this checkout.

    Raises:
        SettingsError: no account is named.
        RefusedError: it is another account, or a production environment's.
    """
    if wanted is None and needs_account:
        raise SettingsError(
            "YES=1 removes resources of whatever account the credentials are for", remedy=f"add ACCOUNT={account}"
        )
    if wanted not in {None, account}:
        raise RefusedError(
            f"the credentials are of account {account}, not of {wanted}", remedy="sign in to that account: AWS_PROFILE"
        )
    check_no_production(account, environments)


def check_no_production(account: str, environments: Iterable[StackSettings]) -> None:
    """Refuse an account that a production environment may be in.

    Raises:
        RefusedError: it may be.
    """
    for one in environments:
        if one.environment.kind is EnvironmentKind.PROD and account in one.aws.allowed_accounts:
            raise RefusedError(
                f"account {account} may hold {one.environment.name}, a production environment: no test cluster is made or removed there",
                remedy="keep test clusters in an account of their own",
            )


def by_settings(stacks: Iterable[TestStack], environments: Iterable[StackSettings]) -> tuple[TestStack, ...]:
    """The stacks, with those in contradiction that are another kind of environment in the settings of this checkout."""
    kinds = {one.environment.name: one.environment.kind for one in environments}

    def judged(one: TestStack) -> TestStack:
        kind = kinds.get(one.name.environment, EnvironmentKind.TEST)
        if kind is EnvironmentKind.TEST:
            return one
        return replace(
            one, standing=Standing.CONTRADICTORY, says=f"kind {kind.value} in its settings, test in its tags"
        )

    return tuple(map(judged, stacks))


def wanted(stacks: Iterable[TestStack], *, named: Iterable[str]) -> tuple[TestStack, ...]:
    """The stacks that would be removed, as far as their tags and the user's words go."""
    names = {_environment(name) for name in named}
    if names:
        return tuple(one for one in stacks if one.name.environment in names)
    return tuple(one for one in stacks if one.standing is Standing.EXPIRED)


def by_regions(stacks: Iterable[TestStack], elsewhere: Mapping[str, Sequence[str]]) -> tuple[TestStack, ...]:
    """The stacks, with those marked that must stay because they have resources in regions that were not looked in.

    Args:
        stacks: the stacks.
        elsewhere: such regions by the stack's tag.
    """
    return tuple(
        replace(one, standing=Standing.ELSEWHERE, says=", ".join(elsewhere[one.name.tag]))
        if one.name.tag in elsewhere
        else one
        for one in stacks
    )


def choose(stacks: Iterable[TestStack], *, named: Iterable[str]) -> tuple[TestStack, ...]:
    """The stacks to remove: those that have expired; if some are named, those and no others, also without an expiry.

    Args:
        stacks: the test stacks of the account.
        named: names of environments, or stack tags.

    Raises:
        RefusedError: a named stack does not exist, has not expired, or must not be removed.
    """
    known = {one.name.environment: one for one in stacks}
    names = sorted({_environment(name) for name in named})
    for name in names:
        _check_named(name, known)
    if names:
        return tuple(known[name] for name in names)
    return tuple(one for one in known.values() if one.standing is Standing.EXPIRED)


def _environment(name: str) -> str:
    """The environment, of its name or of its stack's tag."""
    return name.rpartition("/")[2]


def _check_named(name: str, known: Mapping[str, TestStack]) -> None:
    if name not in known:
        there = ", ".join(known) or "none"
        raise RefusedError(f"no test cluster {name} in this account", remedy=f"name one of those that exist: {there}")
    stack = known[name]
    if stack.standing is Standing.LIVE:
        raise RefusedError(f"{name} expires at {stack.says}", remedy=f"take it down before: make down ENV={name}")
    if stack.standing is Standing.ELSEWHERE:
        raise RefusedError(
            f"{name} has resources in regions that are not looked in: {stack.says}",
            remedy="name all of its regions with REGION: without its roles, what is there could not be removed",
        )
    if stack.standing not in {*ORPHANED, Standing.EXPIRED}:
        raise RefusedError(
            f"{name} is not only a test cluster: {stack.says}",
            remedy="remove what does not belong to it, or correct the tag `kind`",
        )

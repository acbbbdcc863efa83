"""The leak audit: what an environment has left in its account, what it keeps on purpose, and what is not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.leftovers.found import Found, Key, Place
from infra.lifecycle.leftovers.inventory import KINDS, Inventory, NotAudited
from infra.lifecycle.leftovers.keeping import reason_to_keep
from infra.lifecycle.leftovers.kind import Commands
from infra.lifecycle.leftovers.kinds import compute
from infra.lifecycle.leftovers.ownership import Evidence, StackName, owned
from infra.lifecycle.leftovers.prices import usd_per_hour
from infra.lifecycle.leftovers.refusals import AWS_ERRORS, reason
from infra.spec.catalog import Catalog
from infra.spec.cost import HOURS_PER_MONTH
from infra.spec.protection import EnvironmentKind


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """A resource that nothing of the platform needs any more.

    Attributes:
        kind: name of its kind.
        id: its ID.
        label: ID and name.
        region: its region.
        evidence: why it is the environment's.
        usd_per_month: what it costs, without traffic and requests; None if the price table does not know.
        prepare: what comes before the first removal of its kind; empty for most kinds.
        command: what removes it; empty while it is being removed.
    """

    kind: str
    id: str
    label: str
    region: str
    evidence: str
    usd_per_month: float | None
    prepare: str
    command: str


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A resource that an environment of this kind leaves on purpose."""

    kind: str
    label: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result.

    Attributes:
        left: leftovers, in the order in which they can be removed.
        kept: what stays on purpose.
        live: number of resources of the stack as it exists now.
        not_audited: kinds of which it is not known whether any are left.
    """

    left: tuple[Leftover, ...]
    kept: tuple[Kept, ...]
    live: int
    not_audited: tuple[NotAudited, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left, for certain."""
        return not self.left and not self.not_audited

    @property
    def commands(self) -> tuple[str, ...]:
        """What removes the leftovers, in order: of each kind first what prepares all of them."""
        lines: list[str] = []
        for _, group in groupby(self.left, key=lambda one: one.kind):
            some = [one for one in group if one.command]
            lines += [one.prepare for one in some if one.prepare]
            lines += [one.command for one in some]
        return tuple(lines)

    def document(self) -> Mapping[str, object]:
        """The result as plain data."""
        return {
            "clean": self.is_clean,
            "left": [asdict(one) for one in self.left],
            "commands": list(self.commands),
            "kept": [asdict(one) for one in self.kept],
            "live": self.live,
            "not_audited": [one._asdict() for one in self.not_audited],
        }


def audit(
    inventory: Inventory,
    stack: StackName,
    kind: EnvironmentKind,
    *,
    clients: Clients,
    catalog: Catalog,
    state: frozenset[str] | None,
) -> Audit:
    """Sort an inventory into what is left, what is kept and what belongs to the live stack.

    Args:
        inventory: what the account has.
        stack: the stack.
        kind: kind of its environment.
        clients: for what the commands depend on.
        catalog: the price table.
        state: IDs, ARNs and names in Pulumi's state of the stack; None if it has none, or it cannot be read.
    """
    ours = owned(inventory.found, stack)
    left, kept, live = list[Leftover](), list[Kept](), 0
    for one, evidence in ours.values():
        if state and _is_live(one, evidence, ours, state):
            live += 1
        elif (why := reason_to_keep(one, kind)) is not None:
            kept.append(Kept(kind=one.kind, label=one.label, reason=why))
        else:
            left.append(_leftover(one, evidence, clients, catalog))
    in_order = sorted(left, key=lambda one: (KINDS[one.kind].phase, one.kind))
    return Audit(left=tuple(in_order), kept=tuple(kept), live=live, not_audited=inventory.not_audited)


def _is_live(one: Found, evidence: Evidence, ours: Iterable[Key], state: frozenset[str]) -> bool:
    """Whether a stack that exists needs the resource: its state has it, or what it runs has made it."""
    if {one.id, one.name} & state or not evidence.is_made_by_stack:
        return True
    nodes = {key for key in ours if key.kind == compute.INSTANCE}
    return bool(nodes & {*one.parents})


def _leftover(one: Found, evidence: Evidence, clients: Clients, catalog: Catalog) -> Leftover:
    usd, commands = usd_per_hour(one, catalog), Commands("", "") if one.is_going else commands_of(one, clients)
    return Leftover(
        kind=one.kind,
        id=one.id,
        label=one.label,
        region=one.region,
        evidence=evidence.says,
        usd_per_month=None if usd is None else round(usd * HOURS_PER_MONTH, 2),
        prepare=commands.prepare,
        command=commands.remove,
    )


def commands_of(one: Found, clients: Clients) -> Commands:
    """The commands that remove a resource, or why they are not known."""
    try:
        return KINDS[one.kind].commands(one, Place(clients, one.region))
    except AWS_ERRORS as error:
        return Commands("", f"# {one.kind} {one.id}: not known: {reason(error)}")

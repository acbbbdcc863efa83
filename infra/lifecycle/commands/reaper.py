"""Remove test clusters that have expired, found by their tags."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import boto3
from rich.table import Table

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.account.caller import caller_of
from infra.lifecycle.leftovers import guards
from infra.lifecycle.leftovers.elsewhere import look_elsewhere
from infra.lifecycle.leftovers.expiry import ORPHANED, Standing, TestStack, find_test_stacks
from infra.lifecycle.leftovers.found import Found
from infra.lifecycle.leftovers.inventory import KINDS, Inventory, take
from infra.lifecycle.leftovers.policy import reaper_policy
from infra.lifecycle.leftovers.prices import Bill
from infra.lifecycle.leftovers.removal import Pace, Remaining, Removal
from infra.lifecycle.options import ReapOptions
from infra.lifecycle.show import print_line, print_table
from infra.spec.catalog import load_catalog
from infra.spec.errors import ExitStatus, RefusedError, SettingsError
from infra.spec.section import nearest
from infra.spec.settings import environment_names, load_environment

_MINUTE = 60


def reap(options: ReapOptions) -> int:
    """Show the test clusters of an account, and remove those that have expired; fails if anything of them is left."""
    if options.policy:
        print_line(json.dumps(reaper_policy(), indent=2))
        return ExitStatus.DONE
    return _Reaper(options).run()


class _Reaper:
    """One run of the command."""

    def __init__(self, options: ReapOptions) -> None:
        session = boto3.Session()
        self._options = options
        self._regions = _known(options.region) or _own_region(session)
        # STS needs a region only where the session has none.
        account = caller_of(boto3.Session(region_name=self._regions[0])).account
        self._environments = [load_environment(name) for name in environment_names()]
        guards.check_place(
            account,
            wanted=options.account,
            needs_account=options.yes and not options.dry_run,
            environments=self._environments,
        )
        self._clients = Clients(session, account=account)

    def run(self) -> int:
        """Look, show, ask, remove."""
        inventory = take(self._clients, self._regions)
        found = find_test_stacks(inventory.found, account=self._clients.account, now=_now())
        stacks = self._judged(guards.by_settings(found, self._environments))
        chosen = guards.choose(stacks, named=self._options.stack)
        self._show(stacks, chosen, inventory)
        remaining: Mapping[str, Sequence[Remaining]] = {}
        if chosen and not self._options.dry_run:
            self._check_complete(inventory)
            self._confirm(chosen)
            remaining = {one.name.environment: self._remove(one) for one in chosen}
        self._conclude(stacks, inventory, chosen, remaining)
        is_left = any(remaining.values()) or any(one.standing is Standing.ELSEWHERE for one in stacks)
        return ExitStatus.FAILED if is_left or inventory.not_audited else ExitStatus.DONE

    def _judged(self, stacks: Sequence[TestStack]) -> tuple[TestStack, ...]:
        """The stacks, those in regions that are not looked in marked."""
        tags = [one.name.tag for one in guards.wanted(stacks, named=self._options.stack)]
        elsewhere = look_elsewhere(self._clients, tags, looked=self._regions)
        for line in elsewhere.unknown:
            self._say(f"note: not asked for other parts of these clusters: {line}")
        return guards.by_regions(stacks, elsewhere.regions)

    def _say(self, line: str) -> None:
        if self._options.json:
            print(line, file=sys.stderr, flush=True)
        else:
            print_line(line)

    def _show(self, stacks: Sequence[TestStack], chosen: Sequence[TestStack], inventory: Inventory) -> None:
        if self._options.json:
            return
        where = f"account {self._clients.account}, {', '.join(self._regions)}"
        print_line(f"{len(stacks)} test clusters in {where}" if stacks else f"no test clusters in {where}")
        if stacks:
            print_table(_table(stacks))
        for one in stacks:
            if one.standing in ORPHANED and one not in chosen:
                print_line(
                    f"{one.name.environment}: {one.standing}; to remove it: make reap STACK={one.name.environment}"
                )
            if one.standing is Standing.ELSEWHERE:
                where = " ".join((*self._regions, *one.says.split(", ")))
                print_line(f'{one.name.environment}: {one.standing}; to remove all of it: make reap REGION="{where}"')
        for unknown in inventory.not_audited:
            print_line(f"not audited: {unknown}")
        for one in chosen:
            self._show_plan(one)

    def _show_plan(self, stack: TestStack) -> None:
        bill = Bill.of(stack.found.values(), load_catalog())
        print_line(f"{stack.name.environment}: {len(stack.found)} resources to remove, {bill}, in this order:")
        in_order = sorted(stack.found.values(), key=lambda one: (KINDS[one.kind].phase, one.kind, one.id))
        for kind, count in Counter(one.kind for one in in_order).items():
            which = ", ".join(one.label for one in in_order if one.kind == kind)
            print_line(f"  {count} {kind}: {which}" if self._options.dry_run else f"  {count} {kind}")

    def _check_complete(self, inventory: Inventory) -> None:
        if inventory.not_audited:
            lines = "".join(f"\n  {one}" for one in inventory.not_audited)
            raise RefusedError(
                f"nothing is removed, because some kinds could not be listed:{lines}",
                remedy="what is removed in the wrong order is stuck; --policy prints the permissions that the reaper needs",
            )

    def _confirm(self, chosen: Sequence[TestStack]) -> None:
        if self._options.yes:
            return
        number, account = sum(len(one.found) for one in chosen), self._clients.account
        names = ", ".join(one.name.environment for one in chosen)
        self._say(f"type {account} to remove these {number} resources of {names}:")
        if _answer() != account:
            raise RefusedError("nothing was removed", remedy="answer with the account, or set YES=1 ACCOUNT=…")

    def _remove(self, stack: TestStack) -> Sequence[Remaining]:
        pace = Pace(limit=self._options.minutes * _MINUTE, wait=time.sleep, clock=time.monotonic)
        removal = Removal(
            stack=stack.name,
            clients=self._clients,
            regions=tuple(self._regions),
            pace=pace,
            now=_now,
            say=self._say,
            known=frozenset(stack.found),
        )
        try:
            return removal.run()
        except RefusedError as error:
            return [Remaining(stack.name.environment, str(error.args[0]))]

    def _conclude(
        self,
        stacks: Sequence[TestStack],
        inventory: Inventory,
        chosen: Sequence[TestStack],
        remaining: Mapping[str, Sequence[Remaining]],
    ) -> None:
        if self._options.json:
            print_line(json.dumps(self._document(stacks, inventory, chosen, remaining), indent=2))
            return
        for name, left in remaining.items():
            print_line(f"{name}: {len(left)} not removed; run it again" if left else f"{name}: nothing is left")
            for one in left:
                print_line(f"  {one}")
        if self._options.dry_run and chosen:
            print_line("dry run: nothing was changed")

    def _document(
        self,
        stacks: Sequence[TestStack],
        inventory: Inventory,
        chosen: Sequence[TestStack],
        remaining: Mapping[str, Sequence[Remaining]],
    ) -> Mapping[str, object]:
        return {
            "account": self._clients.account,
            "regions": list(self._regions),
            "dry_run": self._options.dry_run,
            "stacks": [
                {
                    "environment": one.name.environment,
                    "owner": one.owner,
                    "standing": one.standing.value,
                    "expiry": one.says,
                    "chosen": one in chosen,
                    "resources": [self._resource(found) for found in one.found.values()],
                    "remaining": [left._asdict() for left in remaining.get(one.name.environment, ())],
                }
                for one in stacks
            ],
            "not_audited": [one._asdict() for one in inventory.not_audited],
        }

    def _resource(self, found: Found) -> Mapping[str, str]:
        return {"kind": found.kind, "id": found.id, "region": found.region}


def _table(stacks: Sequence[TestStack]) -> Table:
    table, catalog = Table(), load_catalog()
    for column in ("test cluster", "owner", "standing", "expires", "resources", "cost"):
        table.add_column(column, overflow="fold")
    for one in stacks:
        bill = Bill.of(one.found.values(), catalog)
        table.add_row(one.name.environment, one.owner, one.standing, one.says, str(len(one.found)), str(bill))
    return table


def _known(regions: Sequence[str]) -> tuple[str, ...]:
    """The regions, each once.

    Raises:
        SettingsError: there is no such region.
    """
    known = load_catalog().regions()
    for region in regions:
        if region not in known:
            raise SettingsError(f"REGION={region}: unknown region", remedy=nearest(region, known))
    return tuple(dict.fromkeys(regions))


def _own_region(session: boto3.Session) -> tuple[str, ...]:
    region = session.region_name or os.environ.get("AWS_REGION")  # boto3 itself reads AWS_DEFAULT_REGION only
    if not region:
        raise SettingsError("no region to look in", remedy="name it: REGION=us-east-1, or set AWS_REGION")
    return (region,)


def _now() -> datetime:
    return datetime.now(UTC)


def _answer() -> str:
    """What the user types; empty without a terminal."""
    try:
        return input().strip()
    except EOFError:
        return ""

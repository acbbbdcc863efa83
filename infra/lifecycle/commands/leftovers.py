"""Find what a stack has left in its account, and remove test clusters that have expired."""

from __future__ import annotations

import json

import boto3
from rich.table import Table

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.account.caller import caller_of
from infra.lifecycle.leftovers.audit import Audit, audit
from infra.lifecycle.leftovers.inventory import KINDS, take
from infra.lifecycle.leftovers.ownership import StackName
from infra.lifecycle.leftovers.policy import audit_policy
from infra.lifecycle.leftovers.stack_state import resources_in_state
from infra.lifecycle.options import LeaksOptions
from infra.lifecycle.show import print_line, print_table
from infra.spec.catalog import load_catalog
from infra.spec.errors import ExitStatus, PlatformError
from infra.spec.settings import check_account, load_environment


def leaks(options: LeaksOptions) -> int:
    """Print what an environment has left in its account; fails if anything is left, or could not be looked for."""
    settings = load_environment(options.env)
    if options.policy:
        print_line(json.dumps(audit_policy(), indent=2))
        return ExitStatus.DONE
    region = settings.aws.region
    session = boto3.Session(region_name=region)
    account = caller_of(session).account
    check_account(settings, account)
    state, note = _state(options.env)
    clients = Clients(session, account=account)
    found = audit(
        take(clients, (region,)),
        StackName(options.env, account),
        settings.environment.kind,
        clients=clients,
        catalog=load_catalog(),
        state=state,
    )
    if options.json:
        where = {"environment": options.env, "account": account, "region": region, "state_known": not note}
        print_line(json.dumps({**where, **found.document()}, indent=2))
    else:
        print_line(f"{options.env}: looked for {len(KINDS)} kinds of resources in account {account}, {region}")
        _print(found, note)
    return ExitStatus.DONE if found.is_clean else ExitStatus.FAILED


def _state(environment: str) -> tuple[frozenset[str] | None, str]:
    """What the stack's state has; None without a stack, and with a note if it cannot be read."""
    try:
        return resources_in_state(environment), ""
    except PlatformError as error:
        why = str(error.args[0]).partition("\n")[0]
        return None, f"the stack's state is not known ({why}): what a live stack uses is listed too"


def _print(found: Audit, note: str) -> None:
    if note:
        print_line(f"note: {note}")
    if found.live:
        print_line(f"the stack exists: {found.live} resources are in its state or made by its cluster, and not listed")
    if found.left:
        _print_left(found)
    elif found.is_clean:
        print_line("nothing is left")
    for kept in found.kept:
        print_line(f"kept: {kept.kind} {kept.label}: {kept.reason}")
    for unknown in found.not_audited:
        print_line(f"not audited: {unknown}")
    if found.not_audited:
        print_line(
            "of these kinds it is not known whether any are left; --policy prints the permissions that the audit needs"
        )


def _print_left(found: Audit) -> None:
    priced = [one.usd_per_month for one in found.left if one.usd_per_month is not None]
    more = len(found.left) - len(priced)
    table = Table(title=f"{len(found.left)} left", title_justify="left")
    for column in ("kind", "resource", "why it is the stack's"):
        table.add_column(column, overflow="fold")
    table.add_column("USD/month", justify="right")
    for one in found.left:
        price = "unknown" if one.usd_per_month is None else f"{one.usd_per_month:.2f}"
        table.add_row(one.kind, one.label, one.evidence, price)
    print_table(table)
    print_line(f"${sum(priced):.2f} a month{f', and {more} without a price' if more else ''}")
    going = [one.label for one in found.left if not one.command]
    if going:
        print_line(f"being deleted already: {', '.join(going)}")
    print_line("to remove them, in this order; wait for what takes minutes, and repeat what is refused as in use:")
    for line in found.commands:
        print_line(f"  {line}")

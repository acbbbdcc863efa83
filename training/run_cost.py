"""What a run on this machine has cost, by class of its wall time, for `cost`."""

from __future__ import annotations

from observability.cost import UNPAID, RunCost
from observability.goodput import GoodputLedger
from observability.quantities import duration, money, percent
from observability.time_classes import TimeClass
from training.errors import SettingsError
from training.rundir import RunDirectory

_HEADINGS = ("class", "time", "share", "dollars")


def describe_cost(run: RunDirectory) -> str:
    """The cost and the goodput of a run, and a line for each class of its wall time that took any, the largest first.

    Raises:
        SettingsError: the run has never started, or none of its drivers knew a price.
    """
    ledger = GoodputLedger.of_run(run.path)
    cost = ledger.cost
    if cost is None:
        what = "has no log, so it has cost nothing" if ledger.wall_seconds == 0 else "does not know its price"
        raise SettingsError(
            f"run {run.name} {what}",
            remedy="set run.dollars_per_hour to the price of its machines, for the time from then on: "
            f"make resume NAME={run.argument} SET=run.dollars_per_hour=1.50",
        )
    taken = sorted(((seconds, name) for name, seconds in ledger.seconds.items() if seconds > 0), reverse=True)
    rows = [_HEADINGS, *(_row(name, seconds, ledger, cost) for seconds, name in taken)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join((f"run {run.name}: {cost.describe()}", *lines))


def _row(name: TimeClass, seconds: float, ledger: GoodputLedger, cost: RunCost) -> tuple[str, str, str, str]:
    spent = "" if name in UNPAID else money(cost.by_class[name])
    return name, duration(seconds), percent(seconds / ledger.wall_seconds), spent

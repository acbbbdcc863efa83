"""What a run cost: the price of what it held, for the time that it held it, by class of its wall time.

The price of a driver's machines is in the event of its start (`observability.runlog.RunStarted`), so that each attempt counts at its own
price. Only a driver's time costs anything here. What a cluster holds for a job before and after its driver, the run cannot see:
`training.cluster.job_cost` counts that from the cluster's objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from observability.quantities import duration, money, percent
from observability.time_classes import TimeClass

UNPAID: frozenset[TimeClass] = frozenset({"idle", "queue"})
"""Classes without a driver: nothing is held then, as far as the run knows."""

_SHOWN_LOSSES = 3

_PRINTED = re.compile(r"cost \$(?P<dollars>[\d,.]+), (?P<percent>[\d.]+) % of it productive(?:;.*)?")


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """The cost of a run, or of a part of it.

    Attributes:
        by_class: US dollars of each class of wall time; what a restart repeated is lost.
        unpriced_seconds: wall time of drivers whose price is not known, which is not in the dollars.
    """

    by_class: Mapping[TimeClass, float]
    unpriced_seconds: float = 0.0

    @property
    def total(self) -> float:
        """US dollars of all classes."""
        return sum(self.by_class.values())

    @property
    def productive_share(self) -> float:
        """The part of the dollars that bought productive time, from 0 to 1."""
        return self.by_class["productive"] / self.total if self.total else 0.0

    def describe(self) -> str:
        """The cost in one line: `$12.30, 81.3 % of it productive; startup $1.10, lost $0.52`. `find_printed_cost` reads it."""
        losses = sorted(((spent, name) for name, spent in self.by_class.items() if name != "productive"), reverse=True)
        shown = ", ".join(f"{name} {money(spent)}" for spent, name in losses[:_SHOWN_LOSSES] if spent > 0)
        parts = [f"{money(self.total)}, {percent(self.productive_share)} of it productive", shown]
        if self.unpriced_seconds > 0:
            parts.append(f"without {duration(self.unpriced_seconds)} at an unknown price")
        return "; ".join(filter(None, parts))


class PrintedCost(NamedTuple):
    """What a driver prints of the cost of its run at its end.

    Attributes:
        dollars: US dollars, as rounded as they are printed.
        productive_share: the part of them that bought productive time, from 0 to 1.
    """

    dollars: float
    productive_share: float


def find_printed_cost(lines: Iterable[str]) -> PrintedCost | None:
    """The cost in the last line of a driver's log that has one, `cost ` and `RunCost.describe`; None if there is none."""
    found = None
    for line in lines:
        found = _PRINTED.fullmatch(line) or found
    if found is None:
        return None
    return PrintedCost(float(found["dollars"].replace(",", "")), float(found["percent"]) / 100)

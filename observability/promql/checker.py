"""Checks expressions against the inventory of metrics: names, types and labels."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

import promql_parser as promql

from observability.metrics.scraped import series_by_name
from observability.promql.labels import LabelReader, Labels

_UNKNOWN = re.compile(r"unknown \w+ '([^']*)'")


@dataclass(frozen=True)
class Checked:
    """What is known of an expression.

    Attributes:
        labels: labels of its result.
        errors: what is wrong with it, each with the nearest known name.
    """

    labels: Labels
    errors: tuple[str, ...]


class ExpressionChecker:
    """Knows every series of the inventory, and those that recording rules add."""

    def __init__(self) -> None:
        metrics = series_by_name()
        self._series = {name: metric.series()[name] for name, metric in metrics.items()}
        self._counters = frozenset(name for name, metric in metrics.items() if metric.kind != "gauge")

    def check(self, expression: str) -> Checked:
        """Check one expression: its syntax, its names, and that functions fit the types of their metrics."""
        errors: list[str] = []
        reader = LabelReader(self._series, counters=self._counters, complain=errors.append)
        labels: Labels = frozenset()
        try:
            labels = reader.labels_of(promql.parse(expression))
        except ValueError as error:
            errors.append(f"{error} in {expression}")
        return Checked(labels, tuple(self.with_nearest(error) for error in dict.fromkeys(errors)))

    def record(self, name: str, labels: Labels) -> None:
        """Make the series of a recording rule known to the expressions after it."""
        self._series[name] = labels

    def with_nearest(self, error: str) -> str:
        """The error with the known name that is most like the unknown one, if any is."""
        return with_nearest(error, [*self._series, *frozenset().union(*self._series.values())])


def with_nearest(error: str, known: Iterable[str]) -> str:
    """Append the known name that is nearest to the one that an error calls unknown, if any is near."""
    named = _UNKNOWN.search(error)
    nearest = get_close_matches(named[1], list(known), n=1) if named else []
    return f"{error}; did you mean '{nearest[0]}'?" if nearest else error

"""Reads the result files of benchmark runs, and the baseline, which has the same format."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from observability.benchmarks.gate.change_points import change_points
from observability.benchmarks.measure import Comparison

BASELINE = "baseline.json"
"""Name of the baseline's file, next to the result files."""

Machine = tuple[str, int]
"""Model and number of the CPUs."""


class HistoryError(Exception):
    """A result file cannot be used; says which, why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """The comparisons of one benchmark run, by name.

    Attributes:
        file: the file they came from.
        machine: results of different machines are not compared.
    """

    file: Path
    machine: Machine
    comparisons: Mapping[str, Comparison]


@dataclass(frozen=True, kw_only=True)
class Level:
    """The results of a comparison since its level changed last.

    Attributes:
        results: the results, the oldest first.
        is_shift: whether there were results on another level before.
    """

    results: Sequence[Comparison]
    is_shift: bool

    @property
    def pooled(self) -> Comparison:
        """The rounds of all its results as one."""
        return _pooled(self.results)

    def near_newest(self, limit: float) -> Comparison:
        """The rounds of the newest result and of those right before it that differ by less than this, as one.

        A change point needs `MIN_SEGMENT` results on both sides and a long history, so a level may still mix two.
        """
        newest = math.log(self.results[-1].ratio)
        near = takewhile(lambda one: abs(math.log(one.ratio) - newest) < math.log1p(limit), reversed(self.results))
        return _pooled([*near][::-1])


def read_results(file: Path) -> Results:
    """Read a result file.

    Raises:
        HistoryError: it is no result file.
    """
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        comparisons = [_comparison(one) for one in record["comparisons"]]
        machine = (str(record["machine"]["cpu"]), int(record["machine"]["cores"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HistoryError(
            f"{file} is not a result file of `make bench`: {error!r}; remove it, or restore it from a backup"
        ) from error
    return Results(file=file, machine=machine, comparisons={one.name: one for one in comparisons})


def read_history(folder: Path) -> list[Results]:
    """All result files of a folder, the oldest first: their names are their times. Those of `make bench-gpu` begin otherwise.

    Raises:
        HistoryError: a file is damaged.
    """
    return [read_results(file) for file in sorted(folder.glob("[0-9]*.json"))]


def newest_level(history: Iterable[Results], name: str, machine: Machine) -> Level:
    """The results of a comparison on this machine since its last change point.

    Raises:
        HistoryError: the history has no such comparison.
    """
    found = [one.comparisons[name] for one in history if one.machine == machine and name in one.comparisons]
    if not found:
        raise HistoryError(f"no results of '{name}' on {machine[0]} with {machine[1]} cores")
    points = change_points([comparison.ratio for comparison in found])
    return Level(results=found[points[-1] :] if points else found, is_shift=bool(points))


def _pooled(results: Sequence[Comparison]) -> Comparison:
    ours = [one for result in results for one in result.ours]
    theirs = [one for result in results for one in result.theirs]
    return replace(results[-1], ours=ours, theirs=theirs)


def _comparison(record: Mapping[str, Any]) -> Comparison:
    return Comparison(
        name=record["name"],
        unit=record["unit"],
        ours=[float(one) for one in record["ours"]],
        theirs=[float(one) for one in record["theirs"]],
        goal=float(record["goal"]),
        higher_is_better=bool(record["higher_is_better"]),
    )

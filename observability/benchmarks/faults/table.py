"""The results as a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

HEADER = ["fault", "platform (spread)", "Ray's pattern (spread)", "ratio", "goal"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What the faults of one kind cost both sides.

    Attributes:
        name: what was measured.
        unit: of both sides; empty for numbers.
        ours, theirs: a measurement for each fault, or for each run.
        at_most, at_least: goal for the median of ours.
        ratio_at_most: goal for the ratio of the medians, ours / theirs.
    """

    name: str
    unit: str = ""
    ours: Sequence[float]
    theirs: Sequence[float]
    at_most: float | None = None
    at_least: float | None = None
    ratio_at_most: float | None = None

    @property
    def ratio(self) -> float | None:
        """Of the medians; None if theirs is 0."""
        theirs = statistics.median(self.theirs)
        return statistics.median(self.ours) / theirs if theirs else None

    @property
    def is_reached(self) -> bool:
        """Whether ours reaches the goal; true without one."""
        ours, ratio = statistics.median(self.ours), self.ratio
        return not (
            (self.at_most is not None and ours > self.at_most)
            or (self.at_least is not None and ours < self.at_least)
            or (self.ratio_at_most is not None and (ratio is None or ratio > self.ratio_at_most))
        )

    def row(self) -> list[str]:
        """Table cells, in the order of `HEADER`."""
        return [
            self.name,
            self._side(self.ours),
            self._side(self.theirs),
            "" if self.ratio is None else f"{self.ratio:.2f}",
            f"{self._goal()}{'' if self.is_reached else ' missed'}",
        ]

    def dump(self) -> dict[str, Any]:
        """The figure as JSON types."""
        return {**asdict(self), "ratio": self.ratio, "is_reached": self.is_reached}

    def _side(self, values: Sequence[float]) -> str:
        low, middle, high = (f"{value:.3g}" for value in (min(values), statistics.median(values), max(values)))
        unit = f" {self.unit}" if self.unit else ""
        return f"{middle}{unit} ({low} to {high}, {len(values)})"

    def _goal(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        if self.at_most is not None:
            return f"{self.at_most:g}{unit} at most"
        if self.at_least is not None:
            return f"{self.at_least:g}{unit} at least"
        return "" if self.ratio_at_most is None else f"ratio {self.ratio_at_most:g} at most"

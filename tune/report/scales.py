"""Where the values of a setting stand on an axis of a plot, from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.ticker import LogLocator, MaxNLocator

from tune.space.axes import Axis, Choice, Constant, is_same
from tune.texts import value_text

_TICKS = 5
_LOG_RATIO = 30.0
_LONGEST_LABEL = 16


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Numbers from `low` to `high`."""

    low: float
    high: float
    is_log: bool = False

    @classmethod
    def around(cls, values: Sequence[float]) -> Numbers:
        """A scale that holds these finite values; logarithmic if a linear one would hide the small ones."""
        low, high = min(values), max(values)
        if low == high:
            margin = abs(low) * 0.05 or 1.0
            return cls(low=low - margin, high=high + margin)
        return cls(low=low, high=high, is_log=low > 0 and high / low > _LOG_RATIO)

    def place(self, value: object) -> float | None:
        """Where the value stands; None if it is no finite number."""
        if not isinstance(value, int | float) or not math.isfinite(value) or (self.is_log and value <= 0):
            return None
        return self._share(value)

    def _share(self, value: float) -> float:
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Places and labels of round values."""
        if self.is_log:
            decades = math.log10(self.high / self.low)
            locator = LogLocator(subs=(1.0,) if decades >= 2 else (1.0, 2.0, 5.0), numticks=_TICKS + 2)
            found = locator.tick_values(self.low, self.high)
        else:
            found = MaxNLocator(_TICKS).tick_values(self.low, self.high)
        edge = 1e-9
        return [(self._share(float(one)), f"{one:g}") for one in found if -edge <= self._share(float(one)) <= 1 + edge]


@dataclass(frozen=True, kw_only=True)
class Names:
    """Values without distances, in their order."""

    values: Sequence[object]

    def place(self, value: object) -> float | None:
        """Where the value stands; None if it is none of them."""
        index = next((number for number, one in enumerate(self.values) if is_same(one, value)), None)  # type: ignore[arg-type]
        return None if index is None else (index + 0.5) / len(self.values)

    def ticks(self) -> list[tuple[float, str]]:
        """Places and labels of all values, or of some if there are too many to read."""
        every = -(-len(self.values) // 12)
        return [
            ((number + 0.5) / len(self.values), shortened(value_text(value)))  # type: ignore[arg-type]
            for number, value in enumerate(self.values)
            if number % every == 0
        ]


Scale = Numbers | Names


def scale_of(axis: Axis) -> Scale:
    """The scale of an axis of the space."""
    if isinstance(axis, Constant | Choice):
        return Names(values=axis.grid())
    low, high = axis.extremes
    assert isinstance(low, int | float)
    assert isinstance(high, int | float)
    return Numbers(low=low, high=high, is_log=axis.is_log)


def shortened(text: str, longest: int = _LONGEST_LABEL) -> str:
    """A text with its middle left out if it is too long."""
    half = (longest - 1) // 2
    return text if len(text) <= longest else f"{text[:half]}…{text[-half:]}"


def wrapped(name: str, width: int = 17) -> str:
    """A setting's name on several lines, broken after dots and underscores."""
    lines = [""]
    for part in name.replace(".", ".\0").replace("_", "_\0").split("\0"):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)

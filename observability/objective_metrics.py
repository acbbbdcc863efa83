"""What a run reports about its objective: which metrics there are and how to read them.

The trainer writes it into the run's log, so that the progress view, the monitor and the report can show any objective.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any, TypeVar

from observability.quantities import percent

_Key = TypeVar("_Key", int, str)


def is_better(value: float, than: float, *, higher_is_better: bool) -> bool:
    """Whether a value is strictly better than another. NaN, which measures nothing, is worse than every number, and equal to NaN."""
    if isnan(value) or isnan(than):
        return isnan(than) and not isnan(value)
    return value > than if higher_is_better else value < than


def ranked(values: Mapping[_Key, float | None], *, higher_is_better: bool) -> list[_Key]:
    """The keys of the values that are numbers, the best first, and equal ones in their own order. NaN and None have no rank."""
    sign = -1.0 if higher_is_better else 1.0
    measured = [(sign * value, key) for key, value in values.items() if value is not None and not isnan(value)]
    return [key for _, key in sorted(measured)]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric of an objective.

    Attributes:
        name: lower case with underscores, e.g. `accuracy`.
        label: axis label with the unit, e.g. `cross-entropy (nats)`; empty: the name.
        is_ratio: the values are from 0 to 1 and shown in percent.
        higher_is_better: whether the best value is the largest.
    """

    name: str
    label: str = ""
    is_ratio: bool = False
    higher_is_better: bool = False

    @property
    def title(self) -> str:
        """The name as words."""
        return self.name.replace("_", " ")

    def text(self, value: float) -> str:
        """A value for people to read: `97.5 %`, `0.1234`, `1.2e+06`."""
        if self.is_ratio:
            return percent(value)
        return f"{value:.4f}" if 1e-3 <= abs(value) < 10 else f"{value:.4g}"

    def better(self, value: float, than: float) -> bool:
        """Whether a value is better than another: see `is_better`."""
        return is_better(value, than, higher_is_better=self.higher_is_better)


LOSS = Metric(name="loss")
"""The loss of an objective that gives it no label."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveInfo:
    """The metrics of a run.

    Attributes:
        metrics: what it reports; `loss` is one of them.
        ranked_by: name of the metric that ranks its checkpoints.
        unit: what the loss is a mean over and the throughput counts: `samples`, `tokens`.
    """

    metrics: tuple[Metric, ...] = (LOSS,)
    ranked_by: str = LOSS.name
    unit: str = "samples"

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> ObjectiveInfo:
        """From the JSON object that `record` makes; what it lacks has its default."""
        values = dict(record)
        if "metrics" in values:
            values["metrics"] = tuple(Metric(**metric) for metric in values["metrics"])
        return cls(**values)

    def record(self) -> dict[str, object]:
        """As a JSON object, for `of`."""
        return {"metrics": [asdict(metric) for metric in self.metrics], "ranked_by": self.ranked_by, "unit": self.unit}

    @property
    def headline(self) -> Metric:
        """The metric that ranks the checkpoints."""
        return self.find(self.ranked_by)

    @property
    def shown(self) -> tuple[Metric, ...]:
        """The metrics for a line of text: the loss, then what ranks the checkpoints."""
        return tuple(dict.fromkeys((self.find("loss"), self.headline)))

    def find(self, name: str) -> Metric:
        """The metric of this name; a plain one if the log does not describe it."""
        return next((metric for metric in self.metrics if metric.name == name), Metric(name=name))

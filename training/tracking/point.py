"""A value of a metric at a step."""

from __future__ import annotations

from typing import NamedTuple


class Point(NamedTuple):
    """One value of a metric, in the field order of MLflow's `Metric`; `timestamp` in milliseconds since the epoch."""

    key: str
    value: float
    timestamp: int
    step: int

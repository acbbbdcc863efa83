"""Values as Grafana shows them in each unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from observability.dashboards.model import Unit
from observability.quantities import duration, size

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def shown(value: float, unit: Unit) -> str:
    """A value with its unit, in about three digits."""
    if not math.isfinite(value):
        return "no data" if math.isnan(value) else "∞"
    sign = "-" if value < 0 else ""
    return sign + _FORMATS[unit](abs(value))


def _scaled(value: float) -> str:
    for factor, prefix in _PREFIXES:
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g}" if value < 1 or value != int(value) else f"{value:.0f}"


def _seconds(value: float) -> str:
    return "0 s" if value == 0 else duration(value)


_FORMATS: Mapping[Unit, Callable[[float], str]] = {
    Unit.COUNT: _scaled,
    Unit.RATIO: lambda value: f"{100 * value:.3g} %",
    Unit.PERCENT: lambda value: f"{value:.3g} %",
    Unit.SECONDS: _seconds,
    Unit.BYTES: size,
    Unit.MEBIBYTES: lambda value: size(value * 2**20),
    Unit.BYTES_PER_SECOND: lambda value: f"{size(value)}/s",
    Unit.PER_SECOND: lambda value: f"{_scaled(value)} /s",
    Unit.CELSIUS: lambda value: f"{value:.3g} °C",
    Unit.WATTS: lambda value: f"{_scaled(value)} W",
    Unit.HERTZ: lambda value: f"{_scaled(value)}Hz",
}

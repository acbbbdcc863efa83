"""Values as Grafana shows them in each unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from observability.dashboards.model import Unit
from observability.quantities import duration, flop_rate, money, size

_CLOCK = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds."""

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def shown(value: float, unit: Unit) -> str:
    """A value with its unit, in about three digits."""
    if not math.isfinite(value):
        return "no data" if math.isnan(value) else "∞"
    sign = "-" if value < 0 else ""
    return sign + _FORMATS[unit](abs(value))


def ticks(low: float, high: float, unit: Unit) -> list[float]:
    """Round values for an axis, at most six: whole minutes, binary multiples of bytes, or 1, 2 and 5 times a power of ten."""
    span = (high - low) / 5
    if not math.isfinite(span) or span <= 0:
        return [low]
    if unit in {Unit.BYTES, Unit.BYTES_PER_SECOND, Unit.MEBIBYTES}:
        step = 2.0 ** math.ceil(math.log2(span))
    elif unit is Unit.SECONDS and span > _CLOCK[0]:
        step = next((one for one in _CLOCK if one >= span), _decimal(span))
    else:
        step = _decimal(span)
        if unit is Unit.COUNT and high - low >= 2:
            step = max(1.0, step)
    return [index * step for index in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _decimal(span: float) -> float:
    power = 10.0 ** math.floor(math.log10(span))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= span * 0.999)


def _scaled(value: float) -> str:
    return _prefixed(value).rstrip()


def _prefixed(value: float) -> str:
    """The number, a space, and the prefix of its unit."""
    for factor, prefix in _PREFIXES:
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g} " if value < 1 or value != int(value) else f"{value:.0f} "


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
    Unit.WATTS: lambda value: f"{_prefixed(value)}W",
    Unit.HERTZ: lambda value: f"{_prefixed(value)}Hz",
    Unit.FLOPS: flop_rate,
    Unit.DOLLARS: money,
}

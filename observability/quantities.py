"""Quantities formatted for people to read."""

from __future__ import annotations

import math
from collections.abc import Sequence


def duration(seconds: float) -> str:
    """Format a duration with about two significant digits: `34 ms`, `3.1 s`, `2 min 05 s`, `1 h 12 min`."""
    if seconds < 0.9995:
        return f"{seconds * 1e3:.{0 if seconds >= 0.00995 else 1}f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def clock(seconds: float) -> str:
    """Format a duration like a stopwatch, in whole seconds: `0:07`, `12:30`, `1:05:00`."""
    whole = round(seconds)
    minutes = f"{whole // 60 % 60}:{whole % 60:02d}"
    return minutes if whole < 3600 else f"{whole // 3600}:{minutes:0>5}"


def size(count: float) -> str:
    """Format a number of bytes in binary units: `312 B`, `1.4 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def flop_rate(value: float) -> str:
    """Format FLOP/s with three significant digits: `3.14 GFLOP/s`."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if value < 999.5:
            return f"{value:.3g} {prefix}FLOP/s"
        value /= 1000
    return f"{value:.3g} EFLOP/s"


def money(dollars: float) -> str:
    """Format US dollars: `$1,234.50`, `$12.30`, `$0.10`, `$0.0021`; less than a hundredth of a cent is `$0.00`."""
    return f"${dollars:.2g}" if 0.0001 <= dollars < 0.0995 else f"${dollars:,.2f}"


def percent(ratio: float) -> str:
    """Format a ratio as a percentage with one decimal: `97.5 %`."""
    return f"{ratio:.1%}".replace("%", " %")


def number(value: float) -> str:
    """Format a count or rate with thousands separators and at least three significant digits: `28,938`, `5,120`, `12.3`."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def counted(count: float, noun: str) -> str:
    """Format a number of things: `1 trial`, `1,600 samples`, `2 batches`; the plural of the noun is regular."""
    ending = "" if count == 1 else "es" if noun.endswith("tch") else "s"
    return f"{number(count)} {noun}{ending}"


def listed(names: Sequence[str], *, most: int = 5) -> str:
    """Format names as a list that may be cut: `a, b, c` or `a, b and 7 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

"""The cost of a session, for people to read."""

from __future__ import annotations


def describe_cost(seconds: float, *, gpus: int, usd_per_hour: float | None) -> str:
    """GPU-hours and US dollars of some time, e.g. `2.5 GPU-hours, about $3.10`.

    Args:
        seconds: the time.
        gpus: GPUs held all the time.
        usd_per_hour: price of all of them; None if the catalogue has no price for them.
    """
    hours = seconds / 3600
    if gpus == 0:
        return f"{hours:.2f} hours without GPUs"
    price = "price unknown" if usd_per_hour is None else f"about ${usd_per_hour * hours:,.2f}"
    return f"{gpus * hours:.2f} GPU-hours, {price}"

"""Rules about the dollars of a team's runs, which the runs count themselves where they know their price (`observability.cost`).

They are what runs cost while they train. What pods hold before and after that, and sessions, `make cost ENV=… TEAM=…` counts.
"""

from __future__ import annotations

from observability.alerts.model import Alert, Group, Recording, Severity

LOST_DOLLARS_PER_HOUR = 20
"""The price of a node with eight mid-range GPUs, or of a third of one with eight of the largest."""

LOST_SHARE = 0.5
"""Of the dollars. Runs that have just begun lose more, but not for hours."""

SPENT_TODAY = "team:dollars:sum1d"
"""What the runs of a team have cost in 24 hours."""

_SPENT = "team:ray_rtp_train_cost_dollars_per_hour:rate1h"
_LOST = "team:ray_rtp_train_lost_dollars_per_hour:rate1h"


def _per_hour(metric: str) -> str:
    return f"3600 * sum by (team) (rate({metric}[1h]))"


RUN_COST = Group(
    name="run-cost",
    recordings=(
        Recording(name=_SPENT, expression=_per_hour("ray_rtp_train_cost_dollars_total")),
        Recording(
            name=_LOST,
            expression=" + ".join(
                (
                    _per_hour('ray_rtp_train_cost_dollars_total{class!="productive"}'),
                    _per_hour('ray_rtp_train_repeated_dollars_total{class="productive"}'),
                )
            ),
        ),
        # The dollars per hour at every fifth minute: an increase over a day would read all samples of all runs each time.
        Recording(name=SPENT_TODAY, expression=f"sum_over_time({_SPENT}[1d:5m]) / 12"),
    ),
    alerts=(
        Alert(
            name="TeamDollarsLost",
            expression=f"{_LOST} > {LOST_DOLLARS_PER_HOUR} and {_LOST} / {_SPENT} > {LOST_SHARE}",
            wait="3h",
            severity=Severity.TICKET,
            summary='The runs of team {{ $labels.team }} lose ${{ $value | printf "%.2f" }} an hour, more than half of what they cost.',
            action="Find the runs with the lowest goodput, and what takes their time; stop those that do not progress.",
        ),
    ),
)
"""Dollars per hour of each team's runs, and those that bought no progress."""

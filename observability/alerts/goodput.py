"""Rules about goodput: the share of a run's wall time that the steps' own work takes.

The objective and the windows are those of multi-window burn rates (Google, "The Site Reliability Workbook", "Alerting on SLOs"): a
long window shows that the loss matters, a short one that it goes on.
"""

from __future__ import annotations

from observability.alerts.expressions import NO_SEARCH, RUN, RUN_TEXT, of_run
from observability.alerts.model import Alert, Group, Recording, Severity

OBJECTIVE = 0.9
"""Goodput that a run should have, without its queueing: restarts, checkpoints, evaluations and data may take a tenth."""

FAST_BURN = 6
"""Multiple of the permitted loss over an hour: most of the time is lost."""

SLOW_BURN = 3
"""Over six hours: almost a third of the time is lost."""

_WINDOWS = ("5m", "30m", "1h", "6h")
_WORK = 'ray_rtp_train_step_part_seconds_total{part=~"forward|backward|optimizer"}'


def _loss(window: str) -> str:
    return f"run:ray_rtp_train_lost_time:ratio_rate{window}"


def _burns(long: str, short: str, rate: int) -> str:
    limit = round(rate * (1 - OBJECTIVE), 6)
    return (
        f"{_loss(long)} > {limit} and {_loss(short)} > {limit} "
        f"and on ({RUN}) {of_run(f'ray_rtp_train_step offset {long}')} >= 0 {NO_SEARCH}"
    )


GOODPUT = Group(
    name="goodput",
    recordings=tuple(
        Recording(name=_loss(window), expression=f"1 - clamp_max(sum by ({RUN}) (rate({_WORK}[{window}])), 1)")
        for window in _WINDOWS
    ),
    alerts=(
        Alert(
            name="GoodputBurnsFast",
            expression=_burns("1h", "5m", FAST_BURN),
            wait="2m",
            severity=Severity.PAGE,
            summary=f"{{{{ $value | humanizePercentage }}}} of the last hour was no training in {RUN_TEXT}.",
            action="See what the time went to: restarts, data, checkpoints, evaluations. Stop the job if it does not progress.",
        ),
        Alert(
            name="GoodputBurnsSlowly",
            expression=_burns("6h", "30m", SLOW_BURN),
            wait="15m",
            severity=Severity.TICKET,
            summary=f"{{{{ $value | humanizePercentage }}}} of the last six hours was no training in {RUN_TEXT}.",
            action="See what the time went to, and change the setting behind the largest part.",
        ),
    ),
)
"""Two burn rates."""

"""Rules about goodput: the share of a run's wall time that steps take which stay in its weights, by the run's own ledger.

Time in the queue and between two drivers is not lost here: it holds no nodes, and the alerts about queues are its own. What the ledger
has not accounted yet, because the run reports nothing, is.

The objective and the windows are those of multi-window burn rates (Google, "The Site Reliability Workbook", "Alerting on SLOs"): a
long window shows that the loss matters, a short one that it goes on.
"""

from __future__ import annotations

from observability.alerts.expressions import NO_SEARCH, RUN, RUN_TEXT, of_run
from observability.alerts.model import Alert, Group, Recording, Severity

OBJECTIVE = 0.9
"""Goodput that a run should have: restarts, checkpoints, evaluations and data may take a tenth."""

FAST_BURN = 6
"""Multiple of the permitted loss over an hour: most of the time is lost."""

SLOW_BURN = 3
"""Over six hours: almost a third of the time is lost."""

_WINDOWS = {"5m": 300, "30m": 1800, "1h": 3600, "6h": 21600}
"""Seconds of each window."""

_WELL_SPENT = "run:ray_rtp_train_wall_seconds:well_spent"
_REPEATED = "run:ray_rtp_train_repeated_seconds:productive"


def _loss(window: str) -> str:
    return f"run:ray_rtp_train_lost_time:ratio_rate{window}"


def _seconds(metric: str, classes: str) -> str:
    """Seconds of classes in a ledger's counter, by run; two processes of a run export it for some seconds."""
    return f'sum by ({RUN}) (max by ({RUN}, class) ({metric}{{class=~"{classes}"}}))'


def _grown(seconds: str, *, window: str) -> str:
    """By how much a ledger's sum has grown. It continues over restarts; only a run that begins anew has less than before.

    `rate` would not see what a process counts at once at its start, such as the restart before it.
    """
    return f"({seconds} - ({seconds} offset {window} <= {seconds} or 0 * {seconds}))"


def _lost_share(window: str) -> str:
    well_spent = f"({_grown(_WELL_SPENT, window=window)} - {_grown(_REPEATED, window=window)})"
    return f"1 - clamp({well_spent} / {_WINDOWS[window]}, 0, 1)"


def _burns(long: str, short: str, rate: int) -> str:
    limit = round(rate * (1 - OBJECTIVE), 6)
    return (
        f"{_loss(long)} > {limit} and {_loss(short)} > {limit} "
        f"and on ({RUN}) {of_run(f'ray_rtp_train_step offset {long}')} >= 0 {NO_SEARCH}"
    )


GOODPUT = Group(
    name="goodput",
    recordings=(
        Recording(name=_WELL_SPENT, expression=_seconds("ray_rtp_train_wall_seconds_total", "productive|queue|idle")),
        Recording(name=_REPEATED, expression=_seconds("ray_rtp_train_repeated_seconds_total", "productive")),
        *(Recording(name=_loss(window), expression=_lost_share(window)) for window in _WINDOWS),
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

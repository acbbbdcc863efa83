"""Rules about hyperparameter searches; their trials are runs with the rules of runs."""

from __future__ import annotations

from observability.alerts.expressions import SEARCH, SEARCH_TEXT
from observability.alerts.model import Alert, Group, Severity

STALL_SECONDS = 7200
"""Longer than an epoch of a trial should take; a search hears of its trials once an epoch."""

FAILED_SHARE = 0.3
FAILED_TRIALS = 3
"""Fewer say nothing about the search."""

_TRIALS = "ray_rtp_search_trials"
_NEWEST = f"max by ({SEARCH}) (ray_rtp_search_last_evaluation_timestamp_seconds)"


def _trials(matcher: str) -> str:
    return f"sum by ({SEARCH}) ({_TRIALS}{{{matcher}}})"


_RUNNING, _ENDED, _FAILED = _trials('status="running"'), _trials('status!="running"'), _trials('status="failed"')


SEARCHES = Group(
    name="searches",
    alerts=(
        Alert(
            name="SearchStalled",
            expression=f"time() - {_NEWEST} > {STALL_SECONDS} and on ({SEARCH}) {_RUNNING} > 0",
            wait="5m",
            severity=Severity.TICKET,
            summary=f"No trial has been evaluated for {{{{ $value | humanizeDuration }}}} in {SEARCH_TEXT}.",
            action="The search's table shows trials that make no steps; otherwise they wait for nodes.",
        ),
        Alert(
            name="SearchTrialsFail",
            expression=f"{_FAILED} / {_ENDED} > {FAILED_SHARE} and {_FAILED} >= {FAILED_TRIALS}",
            wait="0m",
            severity=Severity.TICKET,
            summary=f"{{{{ $value | humanizePercentage }}}} of the ended trials have failed in {SEARCH_TEXT}.",
            action="The search's table has the error of each trial; a narrower space often avoids them.",
        ),
    ),
)
"""Stalls and failures."""

"""Hyperparameter searches: how far they are, how good, and what they cost."""

from __future__ import annotations

from observability.alerts.expressions import RUN, SEARCH
from observability.alerts.searches import FAILED_SHARE, STALL_SECONDS
from observability.dashboards.model import Chart, Dashboard, Limit, Panel, Query, Row, Unit, Variable
from observability.dashboards.queries import OF_TEAM, RATE, TEAM

_OF_SEARCH = f'{OF_TEAM},search=~"$search"'
_OF_TRIALS = f"and on (namespace, training_job) ray_rtp_search_planned_trials{{{_OF_SEARCH}}}"
"""Keeps the runs of the search's job: they are its trials."""


def _newest(metric: str, *, by: str = SEARCH) -> str:
    return f"max by ({by}) (ray_rtp_search_{metric}{{{_OF_SEARCH}}})"


def _trials(matcher: str) -> str:
    return f"sum by ({SEARCH}) (ray_rtp_search_trials{{{_OF_SEARCH},{matcher}}})"


_ENDED, _FAILED = _trials('status!="running"'), _trials('status="failed"')

_NOW = Row(
    title="Now",
    panels=(
        Panel(
            title="Ended trials",
            description="Share of the planned trials that are done, stopped early, or failed.",
            unit=Unit.RATIO,
            queries=(Query(expression=f"{_ENDED} / {_newest('planned_trials')}", legend="{{search}}"),),
            chart=Chart.NUMBER,
            maximum=1,
            width=5,
            height=4,
        ),
        Panel(
            title="Best value",
            description="Of the first objective, which the name shows. Ratios are from 0 to 1.",
            unit=Unit.COUNT,
            queries=(Query(expression=_newest("best", by=f"{SEARCH}, metric"), legend="{{search}} {{metric}}"),),
            chart=Chart.NUMBER,
            width=5,
            height=4,
        ),
        Panel(
            title="Time left",
            description="An upper limit where trials or the search may end early.",
            unit=Unit.SECONDS,
            queries=(Query(expression=_newest("time_left_seconds"), legend="{{search}}"),),
            chart=Chart.NUMBER,
            width=5,
            height=4,
        ),
        Panel(
            title="Since the newest evaluation",
            description="A search hears of its trials once an epoch. It grows while all trials wait, or hang.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expression=f"time() - {_newest('last_evaluation_timestamp_seconds')}",
                    legend="{{search}}",
                ),
            ),
            chart=Chart.NUMBER,
            limits=(Limit(alert="SearchStalled", value=STALL_SECONDS),),
            width=5,
            height=4,
        ),
        Panel(
            title="Failed trials",
            description="Share of the ended trials. `make tune-status` shows each one's error.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expression=f"{_FAILED} / ({_ENDED} > 0)",
                    legend="{{search}}",
                ),
            ),
            chart=Chart.NUMBER,
            limits=(Limit(alert="SearchTrialsFail", value=FAILED_SHARE),),
            maximum=1,
            width=4,
            height=4,
        ),
    ),
)

_COURSE = Row(
    title="Course",
    panels=(
        Panel(
            title="Trials by status",
            description="Many stopped trials are good: the scheduler spends time on the others.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f"sum by (status) (ray_rtp_search_trials{{{_OF_SEARCH}}})",
                    legend="{{status}}",
                ),
            ),
            chart=Chart.STACK,
        ),
        Panel(
            title="Best value over time",
            description="Flat for a long time: the space is exhausted, or too wide. A search can be stopped at any time and continued.",
            unit=Unit.COUNT,
            queries=(Query(expression=_newest("best", by=f"{SEARCH}, metric"), legend="{{search}} {{metric}}"),),
            minimum=None,
        ),
        Panel(
            title="Worker hours",
            description="Time of all workers of all trials so far: what the search costs.",
            unit=Unit.SECONDS,
            queries=(Query(expression=_newest("worker_seconds"), legend="{{search}}"),),
        ),
    ),
)

_TRIAL_ROW = Row(
    title="Trials",
    panels=(
        Panel(
            title="Evaluation loss of each trial",
            description="In its newest evaluation; a line ends where a trial was stopped. A click opens the trial.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f'max by ({RUN}) (ray_rtp_train_evaluation_loss{{{OF_TEAM},split="validation"}}) {_OF_TRIALS}',
                    legend="{{run}}",
                ),
            ),
            minimum=None,
            opens="rtp-run",
            width=12,
            height=9,
        ),
        Panel(
            title="Samples per second of each trial",
            description="Trials on equal workers have equal speeds, unless the space varies the model or the batch.",
            unit=Unit.PER_SECOND,
            queries=(
                Query(
                    expression=f"sum by ({RUN}) (rate(ray_rtp_train_samples_total{{{OF_TEAM}}}{RATE})) {_OF_TRIALS}",
                    legend="{{run}}",
                ),
            ),
            opens="rtp-run",
            width=12,
            height=9,
        ),
    ),
)

SEARCH_DASHBOARD = Dashboard(
    uid="rtp-search",
    title="Search",
    description="How far is a hyperparameter search, is it still finding better settings, and do its trials fail?",
    rows=(_NOW, _COURSE, _TRIAL_ROW),
    variables=(
        TEAM,
        Variable(name="search", title="Search", selector=f"ray_rtp_search_planned_trials{{{OF_TEAM}}}", label="search"),
    ),
    since="6h",
)
"""Trials."""

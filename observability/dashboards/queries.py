"""Variables that dashboards share, and short forms of the expressions that many panels use."""

from __future__ import annotations

from observability.alerts.expressions import RUN
from observability.dashboards.model import Variable

TEAM = Variable(name="team", title="Team", selector="kueue_cluster_queue_status", label="cluster_queue")
"""A team's queue has the name of its namespace (`platform_charts.objects.queueing`)."""

OF_TEAM = 'namespace=~"$team"'

JOB = Variable(name="job", title="Job", selector=f"ray_rtp_train_step{{{OF_TEAM}}}", label="training_job")
OF_JOB = f'{OF_TEAM},training_job=~"$job"'

RUNS = Variable(name="run", title="Run", selector=f"ray_rtp_train_step{{{OF_JOB}}}", label="run")
ONE_RUN = Variable(name="run", title="Run", selector=f"ray_rtp_train_step{{{OF_JOB}}}", label="run", allows_all=False)
OF_RUN = f'{OF_JOB},run=~"$run"'

OF_QUEUE = 'cluster_queue=~"$team"'

RATE = "[$__rate_interval]"
"""Window of a rate: Grafana makes it long enough for the interval of scrapes and for the width of a pixel."""


def of_run(metric: str, *, by: str = RUN) -> str:
    """A gauge of the chosen runs. While a job restarts, two processes export it, and the greater value is the newer one."""
    return f"max by ({by}) ({metric}{{{OF_RUN}}})"


def rate(counter: str, *, by: str = RUN, matchers: str = OF_RUN) -> str:
    """Growth per second of a counter of the chosen runs."""
    return f"sum by ({by}) (rate({counter}{{{matchers}}}{RATE}))"


def quantile(share: float, histogram: str, *, by: str = RUN, matchers: str = OF_RUN, window: str = RATE) -> str:
    """A quantile of a histogram of the chosen runs."""
    return f"histogram_quantile({share}, sum by ({by}, le) (rate({histogram}_bucket{{{matchers}}}{window})))"


def part_share(parts: str, *, by: str = RUN) -> str:
    """Share of the loop's time that parts of a step take; `parts` is a regular expression."""
    counter, chosen = "ray_rtp_train_step_part_seconds_total", f'{OF_RUN},part=~"{parts}"'
    return f"{rate(counter, by=by, matchers=chosen)} / {rate(counter, by=by)}"

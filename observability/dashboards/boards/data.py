"""The data pipeline: whether runs wait for their data, and what the loaders are limited by."""

from __future__ import annotations

from observability.alerts.expressions import RUN
from observability.alerts.training import DATA_SHARE
from observability.dashboards.model import Chart, Dashboard, Limit, Panel, Query, Row, Unit
from observability.dashboards.queries import JOB, OF_JOB, OF_RUN, RUNS, TEAM, of_run, part_share, rate

_NODE = "namespace, training_job, pod"
_DATA = f'{OF_RUN},part="data"'
_PARTS = "ray_rtp_train_step_part_seconds_total"
_STEPS = rate("ray_rtp_train_step_seconds_count")


def _of_node(metric: str) -> str:
    return f"max by ({_NODE}) (ray_node_{metric}{{{OF_JOB}}})"


_WAIT = Row(
    title="Do runs wait for data?",
    panels=(
        Panel(
            title="Waiting for data",
            description="Share of the loop's time. Prefetching hides all of it in a run that is not limited by its data.",
            unit=Unit.RATIO,
            queries=(Query(expression=part_share("data"), legend="{{run}}"),),
            limits=(Limit(alert="TrainingDataBound", value=DATA_SHARE),),
            opens="rtp-run",
            maximum=1,
        ),
        Panel(
            title="Wait per step",
            description="Seconds for which rank 0 waits for each batch. Milliseconds are normal: the copy from the loader.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expression=f"{rate(_PARTS, matchers=_DATA)} / {_STEPS}",
                    legend="{{run}}",
                ),
            ),
        ),
        Panel(
            title="Wall time lost to data",
            description="Seconds of the chosen period that runs waited for data: what a faster loader would save.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expression=f'sum by (run) (increase(ray_rtp_train_wall_seconds_total{{{OF_RUN},class="data"}}[$__range]))',
                    legend="{{run}}",
                ),
            ),
            chart=Chart.BARS,
        ),
    ),
)

_THROUGHPUT = Row(
    title="Throughput",
    panels=(
        Panel(
            title="Samples per second",
            description="Of all ranks. It falls when the wait for data grows.",
            unit=Unit.PER_SECOND,
            queries=(Query(expression=rate("ray_rtp_train_samples_total"), legend="{{run}}"),),
        ),
        Panel(
            title="Units per second",
            description="What the objective counts: tokens of a language model, else samples.",
            unit=Unit.PER_SECOND,
            queries=(
                Query(expression=rate("ray_rtp_train_units_total", by=f"{RUN}, unit"), legend="{{run}} {{unit}}"),
            ),
        ),
        Panel(
            title="Slowest rank against the median",
            description="Over data and forward pass only. One slow rank points to its node; ranks that are slow by turns, to samples "
            "of uneven size.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expression=f"min by ({RUN}) (ray_rtp_train_rank_samples_per_second{{{OF_RUN}}}) / "
                    f"quantile by ({RUN}) (0.5, {of_run('ray_rtp_train_rank_samples_per_second', by=f'{RUN}, rank')})",
                    legend="{{run}}",
                ),
            ),
            alerts=("TrainingStraggler",),
            opens="rtp-run",
            maximum=1,
        ),
    ),
)

_LIMITS = Row(
    title="What limits the loaders?",
    panels=(
        Panel(
            title="CPU of the nodes",
            description="At 100 % the transforms need more CPUs, or less work: decode smaller images, or cache the result.",
            unit=Unit.PERCENT,
            queries=(Query(expression=_of_node("cpu_utilization"), legend="{{pod}}"),),
            maximum=100,
            opens="rtp-ray",
        ),
        Panel(
            title="Disk reads",
            description="From the node's own disks, where `data.cache` keeps datasets.",
            unit=Unit.BYTES_PER_SECOND,
            queries=(Query(expression=_of_node("disk_io_read_speed"), legend="{{pod}}"),),
        ),
        Panel(
            title="Network received",
            description="Datasets on shared storage come this way. A flat line at one value is a limit of the network or of the file "
            "system; small files stay far below it.",
            unit=Unit.BYTES_PER_SECOND,
            queries=(Query(expression=_of_node("network_receive_speed"), legend="{{pod}}"),),
        ),
    ),
)

DATA = Dashboard(
    uid="rtp-data",
    title="Data pipeline",
    description="Do runs wait for their data, and are CPUs, disks or the network the reason?",
    rows=(_WAIT, _THROUGHPUT, _LIMITS),
    variables=(TEAM, JOB, RUNS),
)
"""Loaders."""

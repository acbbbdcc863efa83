"""The dashboard to open when a run is slow: what it is doing, what its time goes to, and which rank or node is to blame."""

from __future__ import annotations

from observability.alerts.expressions import RUN
from observability.alerts.goodput import FAST_BURN, OBJECTIVE
from observability.alerts.training import COMMUNICATION_SHARE, DATA_SHARE, SLOWER_SHARE, STALL_SECONDS, STRAGGLER_SHARE
from observability.dashboards.boards.run_rows import LEARNING, MACHINES
from observability.dashboards.model import Chart, Dashboard, Limit, Panel, Query, Row, Unit
from observability.dashboards.queries import JOB, OF_JOB, OF_RUN, ONE_RUN, TEAM, of_run, part_share, quantile, rate

_SPEED = "ray_rtp_train_samples_per_second"
_RANK_SPEED = of_run("ray_rtp_train_rank_samples_per_second", by=f"{RUN}, rank")
_WALL = "ray_rtp_train_wall_seconds_total"

_NOW = Row(
    title="Now",
    panels=(
        Panel(
            title="Progress",
            description="Share of the planned steps that are done. It only moves forward, except after a restart.",
            unit=Unit.RATIO,
            queries=(Query(expression=f"{of_run('ray_rtp_train_step')} / {of_run('ray_rtp_train_planned_steps')}"),),
            chart=Chart.NUMBER,
            maximum=1,
            width=4,
            height=4,
        ),
        Panel(
            title="Time left",
            description="Steps left, divided by the steps per second of the last half hour. Restarts to come are not in it.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expression=f"({of_run('ray_rtp_train_planned_steps')} - {of_run('ray_rtp_train_step')}) / "
                    f"clamp_min(max by ({RUN}) (deriv(ray_rtp_train_step{{{OF_RUN}}}[30m])), 0.000001)"
                ),
            ),
            chart=Chart.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="Since the newest step",
            description="Less than a few steps' time in a healthy run. It grows while the run evaluates, restarts or hangs.",
            unit=Unit.SECONDS,
            queries=(Query(expression=f"time() - {of_run('ray_rtp_train_last_step_timestamp_seconds')}"),),
            chart=Chart.NUMBER,
            limits=(Limit(alert="TrainingStalled", value=STALL_SECONDS),),
            width=4,
            height=4,
        ),
        Panel(
            title="Work in the last hour",
            description=f"Share of the last hour in which steps did their own work: forward, backward, optimizer. "
            f"The objective is {OBJECTIVE:.0%}; data, checkpoints, evaluations and restarts take the rest.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expression=f"sum by ({RUN}) (rate(ray_rtp_train_step_part_seconds_total"
                    f'{{{OF_RUN},part=~"forward|backward|optimizer"}}[1h]))'
                ),
            ),
            chart=Chart.NUMBER,
            alerts=("GoodputBurnsFast", "GoodputBurnsSlowly"),
            maximum=1,
            width=4,
            height=4,
        ),
        Panel(
            title="Throughput",
            description="Samples per second of all ranks in the newest step.",
            unit=Unit.PER_SECOND,
            queries=(Query(expression=of_run(_SPEED)),),
            chart=Chart.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="Restarts",
            description="Restarts after the first attempt. A spot interruption or a bad node costs one; several within an hour "
            "mean that the same fault returns.",
            unit=Unit.COUNT,
            queries=(Query(expression=of_run("ray_rtp_train_restarts_total")),),
            chart=Chart.NUMBER,
            alerts=("TrainingRestartChurn", "TrainingPoisonStep"),
            width=4,
            height=4,
        ),
    ),
)

_TIME = Row(
    title="Where the time goes",
    panels=(
        Panel(
            title="Parts of a step",
            description="Share of the loop's time on rank 0. Backward includes the part of the all-reduce that overlaps "
            "with it. In a run that is limited by its GPUs, forward and backward are almost everything; a growing part is what to look at "
            "first.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expression=f"{rate('ray_rtp_train_step_part_seconds_total', by=f'{RUN}, part')} / on ({RUN}) group_left () "
                    f"{rate('ray_rtp_train_step_part_seconds_total')}",
                    legend="{{part}}",
                ),
            ),
            chart=Chart.STACK,
            maximum=1,
            width=12,
        ),
        Panel(
            title="Wall time by class",
            description="Seconds of each second of the run, restarts and pauses included. `productive` counts towards goodput; "
            "`communication` is rank 0 waiting for its peers' gradients. The report of the run has the sums.",
            unit=Unit.RATIO,
            queries=(Query(expression=rate(_WALL, by="class"), legend="{{class}}"),),
            chart=Chart.STACK,
            alerts=("GoodputBurnsFast", "GoodputBurnsSlowly"),
            width=12,
        ),
        Panel(
            title="Step time",
            description="Wall time of a step on rank 0. A wide gap between the median and the 95th percentile comes from "
            "uneven batches, checkpoints, or a rank that is slow by turns.",
            unit=Unit.SECONDS,
            queries=(
                Query(expression=quantile(0.5, "ray_rtp_train_step_seconds"), legend="median"),
                Query(expression=quantile(0.95, "ray_rtp_train_step_seconds"), legend="95th percentile"),
            ),
        ),
        Panel(
            title="Waiting for data",
            description="Share of the loop's time in which it waits for the next batch. Prefetching hides all of it in a run "
            "that is not limited by its data.",
            unit=Unit.RATIO,
            queries=(Query(expression=part_share("data"), legend="{{run}}"),),
            limits=(Limit(alert="TrainingDataBound", value=DATA_SHARE),),
            opens="rtp-data",
        ),
        Panel(
            title="Time lost in the last hour",
            description="Share of the last hour that was not a step's own work. Above the line, most of the time is lost.",
            unit=Unit.RATIO,
            queries=(Query(expression=f"run:ray_rtp_train_lost_time:ratio_rate1h{{{OF_RUN}}}", legend="{{run}}"),),
            limits=(Limit(alert="GoodputBurnsFast", value=round(FAST_BURN * (1 - OBJECTIVE), 6)),),
            alerts=("GoodputBurnsSlowly",),
            maximum=1,
        ),
    ),
)

_RANKS = Row(
    title="Speed and ranks",
    panels=(
        Panel(
            title="Throughput over time",
            description="Samples per second of all ranks. A run keeps its speed; a step down that stays has a cause.",
            unit=Unit.PER_SECOND,
            queries=(Query(expression=of_run(_SPEED), legend="{{run}}"),),
        ),
        Panel(
            title="Throughput against its median",
            description="Mean of ten minutes as a share of the median of six hours: 1 is the run's usual speed.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expression=f"{of_run(f'run:{_SPEED}:avg10m')} / "
                    f"max by ({RUN}) (quantile_over_time(0.5, run:{_SPEED}:avg10m{{{OF_RUN}}}[6h]))",
                    legend="{{run}}",
                ),
            ),
            limits=(Limit(alert="TrainingSlower", value=SLOWER_SHARE, is_lower=True),),
        ),
        Panel(
            title="Speed of each rank against the median",
            description="Over the rank's own work only, so that a straggler is low while the others wait for it. "
            "All ranks are close to 1 on equal nodes.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expression=f"{_RANK_SPEED} / on ({RUN}) group_left () quantile by ({RUN}) (0.5, {_RANK_SPEED})",
                    legend="rank {{rank}}",
                ),
            ),
            limits=(Limit(alert="TrainingStraggler", value=STRAGGLER_SHARE, is_lower=True),),
        ),
    ),
)

_EFFICIENCY = Row(
    title="Efficiency",
    panels=(
        Panel(
            title="Exposed communication",
            description="Share of the step time in which even the rank that waits least has its own gradients and waits for those "
            "of its peers: the network's part. A slow rank makes the others wait, and not itself.",
            unit=Unit.RATIO,
            queries=(
                Query(expression=of_run("run:ray_rtp_train_exposed_communication:ratio_rate10m"), legend="{{run}}"),
            ),
            limits=(Limit(alert="TrainingCommunicationBound", value=COMMUNICATION_SHARE),),
        ),
        Panel(
            title="FLOP/s of the model",
            description="Matrix products, convolutions and attention of all ranks in the newest step, as torch counts them.",
            unit=Unit.FLOPS,
            queries=(Query(expression=of_run("ray_rtp_train_flops_per_second"), legend="{{run}}"),),
        ),
        Panel(
            title="Model FLOPs utilization",
            description="Those FLOP/s as a share of the dense peak of the GPUs in the run's precision. Large language models reach "
            "0.3 to 0.5, small models less. Empty on CPUs and GPUs without a known peak.",
            unit=Unit.RATIO,
            queries=(Query(expression=of_run("ray_rtp_train_mfu_ratio"), legend="{{run}}"),),
        ),
        Panel(
            title="Traffic over TCP",
            description="Of all pods of the job: gradients where there is no EFA, and data, checkpoints and logs. What goes over EFA "
            "is not in it.",
            unit=Unit.BYTES_PER_SECOND,
            queries=tuple(
                Query(
                    expression=f"max by (namespace, training_job) "
                    f"(training_job:container_network_{direction}_bytes:rate5m{{{OF_JOB}}})",
                    legend=f"{word} {{{{training_job}}}}",
                )
                for direction, word in (("transmit", "sent"), ("receive", "received"))
            ),
            alerts=("EfaFallback",),
        ),
        Panel(
            title="Cost so far",
            description="US dollars of the run, where it knows its price, by what the time went to.",
            unit=Unit.DOLLARS,
            queries=(
                Query(
                    expression=f"max by ({RUN}, class) (ray_rtp_train_cost_dollars_total{{{OF_RUN}}}) > 0",
                    legend="{{class}}",
                ),
            ),
            chart=Chart.STACK,
            alerts=("TeamDollarsLost",),
        ),
    ),
)

RUN_DASHBOARD = Dashboard(
    uid="rtp-run",
    title="Run",
    description="Why is this run slow, and is it learning? Read it from the top: what it is doing now, what its time goes to, "
    "which rank or node is to blame.",
    rows=(_NOW, _TIME, _RANKS, _EFFICIENCY, MACHINES, LEARNING),
    variables=(TEAM, JOB, ONE_RUN),
)
"""One run."""

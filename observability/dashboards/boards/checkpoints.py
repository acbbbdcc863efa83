"""Checkpoints and faults: how much work a run would lose, what saving costs, and what restarts have cost."""

from __future__ import annotations

from observability.alerts.checkpoints import BACKLOG_BYTES, OBJECTIVE_SECONDS, STALL_SHARE, WRITE_SECONDS
from observability.alerts.expressions import RUN
from observability.alerts.training import RESTARTS_PER_HOUR
from observability.dashboards.model import Chart, Dashboard, Limit, Panel, Query, Row, Unit
from observability.dashboards.queries import JOB, OF_RUN, RUNS, TEAM, of_run, quantile, rate

_WALL = "ray_rtp_train_wall_seconds_total"
_FAULT_CLASSES = "detection|restart|lost|idle"
_RESTARTS = f"run:ray_rtp_train_restarts:max{{{OF_RUN}}}"

_AT_RISK = Row(
    title="What would be lost now?",
    panels=(
        Panel(
            title="Age of the newest checkpoint",
            description="Work that a fault now would repeat. It rises by a second each second, and falls with each checkpoint; that of "
            "a run that has ended keeps rising.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expression=f"time() - {of_run('ray_rtp_train_checkpoint_timestamp_seconds')}",
                    legend="{{run}}",
                ),
            ),
            limits=(Limit(alert="CheckpointOverdue", value=OBJECTIVE_SECONDS),),
            alerts=("CheckpointMissing",),
        ),
        Panel(
            title="Steps since the newest checkpoint",
            description="A saw-tooth whose height is `checkpoint.every_steps`.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f"{of_run('ray_rtp_train_step')} - {of_run('ray_rtp_train_checkpoint_step')}",
                    legend="{{run}}",
                ),
            ),
            alerts=("CheckpointMissing",),
        ),
        Panel(
            title="Checkpoints in an hour",
            description="Committed ones. None for an hour in a run that makes steps is an alert.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f"sum by ({RUN}) (increase(ray_rtp_train_checkpoints_total{{{OF_RUN}}}[1h]))",
                    legend="{{run}}",
                ),
            ),
            alerts=("CheckpointMissing",),
        ),
    ),
)

_BUCKET = Row(
    title="Does the bucket keep up?",
    panels=(
        Panel(
            title="Steps that the bucket is behind",
            description="Steps from the newest checkpoint in the bucket to the newest one in the run's folder: what the loss of the folder "
            "would cost besides. It rises with each commit and falls to 0 with each upload. No line: a run without a bucket.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f"{of_run('ray_rtp_train_checkpoint_step')} - {of_run('ray_rtp_train_remote_checkpoint_step')}",
                    legend="{{run}}",
                ),
            ),
            alerts=("CheckpointBucketBehind", "CheckpointUploadsFail"),
            width=6,
        ),
        Panel(
            title="Newest checkpoint in the folder and in the bucket",
            description="Seconds since the newest commit, and since the newest upload. The bucket's line follows the folder's by the time "
            "of an upload, and rises while uploads fail.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expression=f"time() - {of_run('ray_rtp_train_checkpoint_timestamp_seconds')}",
                    legend="{{run}} folder",
                ),
                Query(
                    expression=f"time() - {of_run('ray_rtp_train_remote_checkpoint_timestamp_seconds')}",
                    legend="{{run}} bucket",
                ),
            ),
            alerts=("CheckpointBucketBehind",),
            width=6,
        ),
        Panel(
            title="Time to upload a checkpoint",
            description="Until it is complete in the bucket, 90th percentile of an hour. It goes on beside the loop; one that takes "
            "longer than the time between two commits leaves checkpoints out.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expression=quantile(0.9, "ray_rtp_train_checkpoint_upload_seconds", window="[1h]"),
                    legend="{{run}}",
                ),
            ),
            alerts=("CheckpointBucketBehind",),
            width=6,
        ),
        Panel(
            title="Failed uploads in an hour",
            description="Each after the retries of its requests. The next attempt follows within a minute, so one or two are a short "
            "fault of the store or the network.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f"sum by ({RUN}) (increase(ray_rtp_train_checkpoint_upload_failures_total{{{OF_RUN}}}[1h]))",
                    legend="{{run}}",
                ),
            ),
            alerts=("CheckpointUploadsFail",),
            width=6,
        ),
    ),
)

_COST = Row(
    title="What does saving cost?",
    panels=(
        Panel(
            title="Time blocked by checkpoints",
            description="Share of wall time in which the loop waits for the copy of a checkpoint. Writing goes on beside the loop.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expression=rate("ray_rtp_train_step_part_seconds_total", matchers=f'{OF_RUN},part="checkpoint"'),
                    legend="{{run}}",
                ),
            ),
            limits=(Limit(alert="CheckpointStall", value=STALL_SHARE),),
        ),
        Panel(
            title="Time to write a checkpoint",
            description="From the copy in memory to the commit, 90th percentile of an hour. A spot node is gone two minutes after its "
            "notice.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expression=quantile(0.9, "ray_rtp_train_checkpoint_write_seconds", window="[1h]"),
                    legend="{{run}}",
                ),
            ),
            limits=(Limit(alert="CheckpointWriteSlow", value=WRITE_SECONDS),),
        ),
        Panel(
            title="Stall of one checkpoint",
            description="How long the loop stands still for one, 90th percentile of an hour: the copy to memory.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expression=quantile(0.9, "ray_rtp_train_checkpoint_stall_seconds", window="[1h]"),
                    legend="{{run}}",
                ),
            ),
            alerts=("CheckpointStall",),
        ),
        Panel(
            title="Size of a checkpoint",
            description="The newest one: weights, optimizer, positions. Constant during a run.",
            unit=Unit.BYTES,
            queries=(Query(expression=of_run("ray_rtp_train_checkpoint_bytes"), legend="{{run}}"),),
        ),
        Panel(
            title="Not delivered to MLflow",
            description="Bytes of events that wait for the tracking server. They are on disk, so nothing is lost.",
            unit=Unit.BYTES,
            queries=(Query(expression=of_run("ray_rtp_train_spool_backlog_bytes"), legend="{{run}}"),),
            limits=(Limit(alert="TrackingBacklog", value=BACKLOG_BYTES),),
            alerts=("MlflowDown",),
        ),
        Panel(
            title="Refused checkpoints",
            description="Checkpoints that failed verification when a run was restored, since it started. It fell back to an older one. "
            "Ray counts after the first one: no line is good.",
            unit=Unit.COUNT,
            queries=(Query(expression=of_run("ray_rtp_train_checkpoints_refused_total"), legend="{{run}}"),),
            alerts=("CheckpointRefused",),
        ),
    ),
)

_FAULTS = Row(
    title="What have faults cost?",
    panels=(
        Panel(
            title="Restarts in an hour",
            description="A spot interruption or a bad node costs one or two; more means that the same fault returns.",
            unit=Unit.COUNT,
            queries=(Query(expression=f"{_RESTARTS} - min_over_time({_RESTARTS}[1h])", legend="{{run}}"),),
            limits=(Limit(alert="TrainingRestartChurn", value=RESTARTS_PER_HOUR),),
            alerts=("TrainingPoisonStep", "SpotNodesLost"),
            opens="rtp-run",
        ),
        Panel(
            title="Steps repeated",
            description="Steps that came after the restored checkpoint, since the run started. More frequent checkpoints lower it.",
            unit=Unit.COUNT,
            queries=(Query(expression=of_run("ray_rtp_train_lost_steps_total"), legend="{{run}}"),),
        ),
        Panel(
            title="Time that faults took",
            description="Of the chosen period: until a failure was known, until the ranks were ready again, steps that were repeated, "
            "and pauses between a stop and a resume.",
            unit=Unit.SECONDS,
            queries=(
                Query(
                    expression=f'sum by (class) (increase({_WALL}{{{OF_RUN},class=~"{_FAULT_CLASSES}"}}[$__range]))',
                    legend="{{class}}",
                ),
            ),
            chart=Chart.BARS,
        ),
    ),
)

CHECKPOINTS_DASHBOARD = Dashboard(
    uid="rtp-checkpoints",
    title="Checkpoints and faults",
    description="How much work would a fault cost now, what do checkpoints cost, and what have faults cost so far?",
    rows=(_AT_RISK, _BUCKET, _COST, _FAULTS),
    variables=(TEAM, JOB, RUNS),
    since="6h",
)
"""Recovery."""

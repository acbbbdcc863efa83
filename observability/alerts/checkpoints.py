"""Rules about checkpoints, and about what is not yet delivered to MLflow."""

from __future__ import annotations

from observability.alerts.expressions import COUNT, RUN, RUN_TEXT, growth, of_run
from observability.alerts.model import Alert, Group, Severity
from observability.alerts.training import STALL_SECONDS

OBJECTIVE_SECONDS = 3600
"""Work that a run may lose: a node-hour on each of its nodes."""

STALL_SHARE = 0.05
"""Share of wall time for which checkpoints block the loop; half of what the goodput's objective permits for everything."""

WRITE_SECONDS = 120
"""EC2 announces the end of a spot instance this long before it; a checkpoint that takes longer is not saved.

A bound of the histogram's buckets, between which a quantile is a guess."""

BUCKET_LAG_SECONDS = OBJECTIVE_SECONDS
"""Time from a commit until the bucket has that checkpoint or a newer one; whoever loses the run's folder loses this much more.

It counts from the commit: a run that commits every two hours is not behind while it copies the newest one."""

BACKLOG_BYTES = 256 * 2**20
"""About a million steps of events."""

_NEWEST = of_run("ray_rtp_train_checkpoint_timestamp_seconds")
_STALLS = 'ray_rtp_train_step_part_seconds_total{part="checkpoint"}'
"""Exact, unlike the sum of the histogram of stalls, which Ray estimates from its buckets."""

_SAVED, _COPIED = of_run("ray_rtp_train_checkpoint_step"), of_run("ray_rtp_train_remote_checkpoint_step")
_SAVED_BEFORE = of_run(f"ray_rtp_train_checkpoint_step offset {BUCKET_LAG_SECONDS // 60}m")

_STEPS = of_run("ray_rtp_train_step")
_IS_TRAINING = f"time() - {of_run('ray_rtp_train_last_step_timestamp_seconds')} < {STALL_SECONDS}"

CHECKPOINTS = Group(
    name="checkpoints",
    alerts=(
        Alert(
            name="CheckpointOverdue",
            expression=f"time() - {_NEWEST} > {OBJECTIVE_SECONDS} and on ({RUN}) {_IS_TRAINING}",
            wait="5m",
            severity=Severity.TICKET,
            summary=f"The newest checkpoint is {{{{ $value | humanizeDuration }}}} old in {RUN_TEXT}.",
            action="Lower checkpoint.every_steps; if the setting is short, the log has the error of the last save.",
        ),
        Alert(
            name="CheckpointMissing",
            expression=f"({_STEPS} - on ({RUN}) {of_run('ray_rtp_train_step offset 1h')} > 0) unless on ({RUN}) "
            f"{of_run('max_over_time(ray_rtp_train_checkpoint_timestamp_seconds[1h])')}",
            wait="5m",
            severity=Severity.TICKET,
            summary=f"{COUNT} steps in an hour, and no checkpoint, of {RUN_TEXT}.",
            action="Lower checkpoint.every_steps; without a checkpoint a restart begins at step 0.",
        ),
        Alert(
            name="CheckpointStall",
            expression=f"sum by ({RUN}) (rate({_STALLS}[30m])) > {STALL_SHARE}",
            wait="15m",
            severity=Severity.TICKET,
            summary=f"Checkpoints block the loop for {{{{ $value | humanizePercentage }}}} of the time in {RUN_TEXT}.",
            action="Save less often, or asynchronously; look at the write time and the file system's throughput.",
        ),
        Alert(
            name="CheckpointWriteSlow",
            expression=f"histogram_quantile(0.9, sum by ({RUN}, le) "
            f"(rate(ray_rtp_train_checkpoint_write_seconds_bucket[1h]))) > {WRITE_SECONDS}",
            wait="15m",
            severity=Severity.TICKET,
            summary=f"A checkpoint takes {{{{ $value | humanizeDuration }}}} to be written in {RUN_TEXT}.",
            action="An interrupted spot node loses it. Shard the state, or use a faster file system.",
        ),
        Alert(
            name="CheckpointRefused",
            expression=f"{growth('ray_rtp_train_checkpoints_refused_total', by=RUN, window='1h')} > 0",
            wait="0m",
            severity=Severity.TICKET,
            summary=f"{COUNT} checkpoints failed verification in {RUN_TEXT}, which resumed from an older one.",
            action="The log names the files. Look for a full or failing file system before the next save.",
        ),
        Alert(
            name="CheckpointUploadsFail",
            expression=f"{growth('ray_rtp_train_checkpoint_upload_failures_total', by=RUN, window='15m')} > 0",
            wait="30m",
            severity=Severity.TICKET,
            summary=f"{COUNT} uploads of checkpoints to the bucket failed in 15 minutes in {RUN_TEXT}.",
            action="The log has the bucket's answer. The run goes on; its folder has the checkpoints that the bucket lacks.",
        ),
        Alert(
            name="CheckpointBucketBehind",
            expression=f"({_SAVED} - on ({RUN}) {_COPIED} > 0) and on ({RUN}) ({_SAVED_BEFORE} > on ({RUN}) {_COPIED}) "
            f'unless on ({RUN}) ALERTS{{alertname="CheckpointUploadsFail",alertstate="firing"}}',
            wait="5m",
            severity=Severity.TICKET,
            summary=f"The bucket lacks the checkpoint of an hour ago, and is {COUNT} steps behind the newest, in {RUN_TEXT}.",
            action="An upload takes too long. Look at the network of rank 0's node, and at the size of a checkpoint.",
        ),
        Alert(
            name="TrackingBacklog",
            expression=f"{of_run('ray_rtp_train_spool_backlog_bytes')} > {BACKLOG_BYTES}",
            wait="15m",
            severity=Severity.TICKET,
            summary=f"{{{{ $value | humanize1024 }}}}B of metrics are not delivered to MLflow in {RUN_TEXT}.",
            action="The run goes on. Look at MLflow's server and database; `make sync` delivers what a finished run has left.",
        ),
    ),
)
"""Age, stalls, duration and verification of checkpoints, and their copies in the bucket."""

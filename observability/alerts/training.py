"""Rules about the progress and the speed of a run."""

from __future__ import annotations

from observability.alerts.expressions import COUNT, NO_SEARCH, RUN, RUN_TEXT, growth, of_run
from observability.alerts.model import Alert, Group, Recording, Severity

STALL_SECONDS = 900
"""Longer than an evaluation, an export or a checkpoint that blocks the loop should take."""

STRAGGLER_SHARE = 0.7
"""Speed of a rank as a share of the median: all ranks wait for the slowest one, so the run loses the rest of it."""

DATA_SHARE = 0.3
"""Share of a step spent waiting for data; the loader's prefetching hides all of it in a run that is not limited by its data."""

COMMUNICATION_SHARE = 0.3
"""Share of a step in which even the rank that waits least waits for the gradients of others."""

NONFINITE_STEPS = 10
"""In 15 minutes. The gradient scaler of mixed precision causes a few while it finds its scale."""

DIVERGED_RATIO = 2.0
"""Mean loss as a multiple of its lowest mean of six hours."""

DIVERGED_FLOOR = 0.1
"""A loss below it doubles by noise."""

SLOWER_SHARE = 0.7
"""Throughput as a share of the median of the last six hours."""

RESTARTS_PER_HOUR = 3
"""A spot interruption or a bad node costs one or two."""

_RATIO = "run:ray_rtp_train_data_wait:ratio_rate10m"
_EXPOSED = "run:ray_rtp_train_exposed_communication:ratio_rate10m"
_RESTARTS = "run:ray_rtp_train_restarts:max"
_LOSS = "run:ray_rtp_train_loss:avg10m"
_SPEED = "run:ray_rtp_train_samples_per_second:avg10m"
_PARTS = "ray_rtp_train_step_part_seconds_total"
_WAITS = f"sum by ({RUN}, rank) (rate(ray_rtp_train_rank_communication_seconds_total[10m]))"
_RANKS = f"max by ({RUN}, rank) (ray_rtp_train_rank_samples_per_second)"

_RECORDINGS = (
    Recording(
        name=_RATIO,
        expression=f'sum by ({RUN}) (rate({_PARTS}{{part="data"}}[10m])) / sum by ({RUN}) (rate({_PARTS}[10m]))',
    ),
    # The minimum, because the slowest rank waits for the network only, and the others also for it.
    Recording(name=_EXPOSED, expression=f"min by ({RUN}) ({_WAITS}) / on ({RUN}) sum by ({RUN}) (rate({_PARTS}[10m]))"),
    Recording(name=_RESTARTS, expression=of_run("ray_rtp_train_restarts_total")),
    Recording(name=_LOSS, expression=of_run("avg_over_time(ray_rtp_train_loss[10m])")),
    Recording(name=_SPEED, expression=of_run("avg_over_time(ray_rtp_train_samples_per_second[10m])")),
)

_IS_DATA_BOUND = f"{_RATIO} > {DATA_SHARE}"
_IS_COMMUNICATION_BOUND = f"{_EXPOSED} > {COMMUNICATION_SHARE}"
_WITHOUT_A_KNOWN_CAUSE = (
    f"unless on ({RUN}) ({_IS_DATA_BOUND}) unless on ({RUN}) ({_IS_COMMUNICATION_BOUND}) "
    f'unless on ({RUN}) ALERTS{{alertname="TrainingStraggler",alertstate="firing"}}'
)
"""A run that became slower because of its data, its network or a slow rank has the alert that says so. Of a slow rank the alert counts,
not the condition, which comes and goes with every step."""

_RESTARTED = f"{_RESTARTS} - min_over_time({_RESTARTS}[1h]) >= {RESTARTS_PER_HOUR}"
_COMMITTED = f"{of_run('max_over_time(ray_rtp_train_checkpoint_timestamp_seconds[1h])')} > time() - 3600"

TRAINING = Group(
    name="training",
    recordings=_RECORDINGS,
    alerts=(
        Alert(
            name="TrainingStalled",
            expression=f"time() - {of_run('ray_rtp_train_last_step_timestamp_seconds')} > {STALL_SECONDS} "
            f"and on ({RUN}) ({of_run('ray_rtp_train_step')} < on ({RUN}) {of_run('ray_rtp_train_planned_steps')}) "
            f"{NO_SEARCH}",
            wait="1m",
            severity=Severity.PAGE,
            summary=f"No step for {{{{ $value | humanizeDuration }}}} in {RUN_TEXT}.",
            action="Look at the logs of all ranks; a rank that waits in a collective names the one that is missing.",
        ),
        Alert(
            name="TrainingStraggler",
            expression=f"{_RANKS} / on ({RUN}) group_left () quantile by ({RUN}) (0.5, {_RANKS}) < {STRAGGLER_SHARE}",
            wait="10m",
            severity=Severity.TICKET,
            summary=f"Rank {{{{ $labels.rank }}}} has {{{{ $value | humanizePercentage }}}} of the median speed in {RUN_TEXT}.",
            action="Compare its node's GPU clocks, temperature and CPU load with the others; restart the job without the node.",
        ),
        Alert(
            name="TrainingDataBound",
            expression=_IS_DATA_BOUND,
            wait="15m",
            severity=Severity.TICKET,
            summary=f"{{{{ $value | humanizePercentage }}}} of the step time is waiting for data in {RUN_TEXT}.",
            action="Raise data.loader_workers, cache the dataset on the node's disks, or make the transforms cheaper.",
        ),
        Alert(
            name="TrainingCommunicationBound",
            expression=_IS_COMMUNICATION_BOUND,
            wait="15m",
            severity=Severity.TICKET,
            summary=f"{{{{ $value | humanizePercentage }}}} of the step time is waiting for the network in {RUN_TEXT}.",
            action="Use nodes with EFA, or fewer and larger ones; raise loop.accumulation to communicate less often.",
        ),
        Alert(
            name="TrainingNonFiniteSteps",
            expression=f"{growth('ray_rtp_train_nonfinite_steps_total', by=RUN, window='15m')} > {NONFINITE_STEPS}",
            wait="0m",
            severity=Severity.TICKET,
            summary=f"{COUNT} steps with a NaN or infinite loss or gradient in 15 minutes in {RUN_TEXT}.",
            action="Lower the learning rate or clip gradients; look for invalid samples. These steps change no weights.",
        ),
        Alert(
            name="TrainingLossDiverging",
            expression=f"{_LOSS} / min_over_time({_LOSS}[6h]) > {DIVERGED_RATIO} and {_LOSS} > {DIVERGED_FLOOR} "
            f"and min_over_time({_LOSS}[6h]) > 0",
            wait="30m",
            severity=Severity.TICKET,
            summary=f"The loss is {{{{ $value | humanize }}}} times its lowest mean of six hours in {RUN_TEXT}.",
            action="Stop the run, and resume it from a checkpoint before the rise with a lower learning rate.",
        ),
        Alert(
            name="TrainingSlower",
            expression=f"{_SPEED} / quantile_over_time(0.5, {_SPEED}[6h]) < {SLOWER_SHARE} {_WITHOUT_A_KNOWN_CAUSE}",
            wait="15m",
            severity=Severity.TICKET,
            summary=f"Throughput is {{{{ $value | humanizePercentage }}}} of the median of six hours in {RUN_TEXT}.",
            action="See which part of the step grew: data, forward, backward, checkpoint. Then look at the slowest rank's node.",
        ),
        Alert(
            name="TrainingRestartChurn",
            expression=_RESTARTED,
            wait="0m",
            severity=Severity.TICKET,
            summary=f"{COUNT} restarts within an hour in {RUN_TEXT}.",
            action="The job's log has the error of each attempt; one node in all of them points to its hardware.",
        ),
        Alert(
            name="TrainingPoisonStep",
            expression=f"{_RESTARTED} unless on ({RUN}) {_COMMITTED}",
            wait="0m",
            severity=Severity.PAGE,
            summary=f"{COUNT} restarts within an hour, and no checkpoint between them, in {RUN_TEXT}.",
            action="Stop the job: it repeats the same steps and fails. Look at the sample, or the state, of the last step.",
        ),
    ),
)
"""Stalls, slow ranks, data, divergence, restarts."""

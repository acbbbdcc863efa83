"""The metrics of a run's events, as Prometheus scrapes them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from observability.cost import UNPAID
from observability.history import RunHistory
from observability.metrics.prometheus import PrometheusRecorder
from observability.metrics.training_metrics import TrainingMetrics
from observability.runlog import (
    CheckpointCommitted,
    CheckpointUploaded,
    Evaluated,
    Event,
    Restored,
    RunStarted,
    Step,
    TrainingStarted,
)
from tests.observability.metrics.exported import FLOPS, RANKS, RUN, UPLOAD_FAILED, families, values
from tests.observability.sample_run import restarted_run

STARTED = TrainingStarted(
    world=2,
    start_step=0,
    total_steps=230,
    steps_per_epoch=23,
    parameters=28_938,
    train_samples=1_437,
    dataset_fingerprint="ab",
)
STEP = Step(
    time=1000.5,
    step=7,
    epoch=2,
    loss=0.5,
    metrics={"accuracy": 0.75},
    gradient_norm=2.0,
    learning_rate=0.003,
    samples=64,
    seconds=0.02,
    data_seconds=0.002,
    forward_seconds=0.005,
    backward_seconds=0.008,
    optimizer_seconds=0.001,
    checkpoint_seconds=0.003,
    rank_seconds=[0.008, 0.016],
)


@pytest.fixture
def recorder() -> Iterator[PrometheusRecorder]:
    server = PrometheusRecorder(host="127.0.0.1", port=0)
    yield server
    server.close()


@pytest.fixture
def metrics(recorder: PrometheusRecorder) -> TrainingMetrics:
    metrics = TrainingMetrics(recorder, run=RUN)
    metrics.handle(STARTED)
    return metrics


def test_the_start_of_training_sets_its_size(recorder: PrometheusRecorder, metrics: TrainingMetrics) -> None:
    found = values(recorder.url)
    assert found["rtp_train_planned_steps"] == 230
    assert found["rtp_train_ranks"] == 2
    assert found["rtp_train_parameters"] == 28_938
    assert found["rtp_train_last_step_timestamp_seconds"] == STARTED.time


def test_a_step_sets_the_gauges(recorder: PrometheusRecorder, metrics: TrainingMetrics) -> None:
    metrics.handle(STEP)
    found = values(recorder.url)
    assert found["rtp_train_step"] == 7
    assert found["rtp_train_epoch"] == 2
    assert found["rtp_train_loss"] == 0.5
    assert found['rtp_train_metric{metric="accuracy"}'] == 0.75
    assert found["rtp_train_gradient_norm"] == 2.0
    assert found["rtp_train_learning_rate"] == 0.003
    assert found["rtp_train_last_step_seconds"] == 0.02
    assert found["rtp_train_last_step_timestamp_seconds"] == 1000.5
    assert found["rtp_train_samples_per_second"] == pytest.approx(3200)


def test_samples_and_step_times_accumulate_over_steps(recorder: PrometheusRecorder, metrics: TrainingMetrics) -> None:
    metrics.handle(STEP)
    metrics.handle(replace(STEP, step=8, samples=29))
    found = values(recorder.url)
    assert found["rtp_train_samples_total"] == 93
    assert found["rtp_train_step_seconds_count"] == 2
    assert found["rtp_train_step_seconds_sum"] == pytest.approx(0.04)
    assert found['rtp_train_step_seconds_bucket{le="0.025"}'] == 2
    assert found['rtp_train_step_seconds_bucket{le="0.01"}'] == 0


def test_a_batch_of_steps_counts_each_and_sets_gauges_from_the_newest(
    recorder: PrometheusRecorder, metrics: TrainingMetrics
) -> None:
    metrics.handle(replace(STEP, loss=math.nan), replace(STEP, step=8, loss=0.25, seconds=0.002))
    found = values(recorder.url)
    assert found["rtp_train_step"] == 8
    assert found["rtp_train_loss"] == 0.25
    assert found["rtp_train_samples_total"] == 128
    assert found["rtp_train_nonfinite_steps_total"] == 1
    assert found['rtp_train_step_part_seconds_total{part="forward"}'] == pytest.approx(0.01)
    assert found['rtp_train_step_seconds_bucket{le="0.01"}'] == 1


def test_the_parts_of_a_step_add_up_to_its_time(recorder: PrometheusRecorder, metrics: TrainingMetrics) -> None:
    metrics.handle(STEP)
    parts = {
        sample.labels["part"]: sample.value
        for sample in families(recorder.url)["rtp_train_step_part_seconds_total"].samples
    }
    assert parts["data"] == pytest.approx(0.002)
    assert parts["other"] == pytest.approx(0.001)
    assert sum(parts.values()) == pytest.approx(STEP.seconds)


def test_a_straggler_has_a_lower_rank_speed(recorder: PrometheusRecorder, metrics: TrainingMetrics) -> None:
    metrics.handle(STEP)
    found = values(recorder.url)
    assert found['rtp_train_rank_samples_per_second{rank="0"}'] == pytest.approx(4000)
    assert found['rtp_train_rank_samples_per_second{rank="1"}'] == pytest.approx(2000)


@pytest.mark.parametrize("bad", [replace(STEP, loss=math.nan), replace(STEP, gradient_norm=math.inf)])
def test_a_step_that_is_not_finite_is_counted(
    bad: Step, recorder: PrometheusRecorder, metrics: TrainingMetrics
) -> None:
    metrics.handle(STEP)
    metrics.handle(bad)
    assert values(recorder.url)["rtp_train_nonfinite_steps_total"] == 1


def test_evaluations_are_labelled_by_split(recorder: PrometheusRecorder, metrics: TrainingMetrics) -> None:
    for split, accuracy in (("validation", 0.9), ("test", 0.8), ("validation", 0.95)):
        metrics.handle(
            Evaluated(split=split, step=7, epoch=2, loss=0.1, metrics={"accuracy": accuracy}, samples=9, seconds=0.2)
        )
    found = values(recorder.url)
    assert found['rtp_train_evaluation_metric{metric="accuracy",split="validation"}'] == 0.95
    assert found['rtp_train_evaluation_metric{metric="accuracy",split="test"}'] == 0.8
    assert found['rtp_train_evaluation_loss{split="test"}'] == 0.1
    assert found['rtp_train_evaluation_seconds{split="test"}'] == 0.2


def test_a_late_evaluation_does_not_replace_that_of_a_later_step(
    recorder: PrometheusRecorder, metrics: TrainingMetrics
) -> None:
    for step, loss in ((7, 0.1), (5, 0.3)):
        metrics.handle(
            Evaluated(split="validation", step=step, epoch=1, loss=loss, samples=9, seconds=0.2, is_asynchronous=True)
        )
    assert values(recorder.url)['rtp_train_evaluation_loss{split="validation"}'] == 0.1


def test_a_commit_records_size_duration_and_time(recorder: PrometheusRecorder, metrics: TrainingMetrics) -> None:
    metrics.handle(
        CheckpointCommitted(time=2000.0, step=50, path="c", bytes=1024, stall_seconds=0.002, write_seconds=0.3)
    )
    found = values(recorder.url)
    assert found["rtp_train_checkpoints_total"] == 1
    assert found["rtp_train_checkpoint_bytes"] == 1024
    assert found["rtp_train_checkpoint_step"] == 50
    assert found["rtp_train_checkpoint_timestamp_seconds"] == 2000.0
    assert found["rtp_train_checkpoint_stall_seconds_sum"] == pytest.approx(0.002)
    assert found["rtp_train_checkpoint_write_seconds_sum"] == pytest.approx(0.3)


def test_the_time_and_step_of_the_buckets_newest_checkpoint_are_recorded(
    recorder: PrometheusRecorder, metrics: TrainingMetrics
) -> None:
    for time, step in ((2000.0, 50), (2001.0, 40)):
        metrics.handle(CheckpointUploaded(time=time, step=step, location="s3://b/run", bytes=1024, seconds=0.5))
    found = values(recorder.url)
    assert found["rtp_train_checkpoint_uploads_total"] == 2
    assert found["rtp_train_checkpoint_upload_seconds_sum"] == pytest.approx(1.0)
    assert found["rtp_train_remote_checkpoint_step"] == 50
    assert found["rtp_train_remote_checkpoint_timestamp_seconds"] == 2000.0


def uploaded(step: int) -> CheckpointUploaded:
    return CheckpointUploaded(time=2000.0 + step, step=step, location="s3://b/run", bytes=1024, seconds=0.5)


def test_uploads_that_fail_are_counted(recorder: PrometheusRecorder, metrics: TrainingMetrics) -> None:
    metrics.handle(UPLOAD_FAILED, UPLOAD_FAILED)
    assert values(recorder.url)["rtp_train_checkpoint_upload_failures_total"] == 2


@pytest.mark.parametrize(
    ("remote", "uploads", "step"),
    [
        ("s3://b", [uploaded(50), uploaded(40)], 50),
        ("s3://b", [], 0),
        (None, [uploaded(50)], None),  # it had a bucket when it was last started
    ],
)
def test_a_process_knows_from_the_history_what_the_bucket_has(
    recorder: PrometheusRecorder, remote: str | None, uploads: list[Event], step: int | None
) -> None:
    start = RunStarted(run=RUN, settings={"checkpoint": {"remote": remote}}, environment={})
    TrainingMetrics(recorder, run=RUN, history=[*uploads, start])
    found = values(recorder.url)
    assert found.get("rtp_train_remote_checkpoint_step") == step
    assert found.get("rtp_train_remote_checkpoint_timestamp_seconds") == (2050.0 if step else None)


def test_a_run_that_is_set_back_counts_its_bucket_from_there(
    recorder: PrometheusRecorder, metrics: TrainingMetrics
) -> None:
    """The first upload after it removes what was copied of the steps that are gone."""
    metrics.handle(uploaded(50))
    metrics.handle(replace(STARTED, start_step=30))
    metrics.handle(uploaded(40))
    assert values(recorder.url)["rtp_train_remote_checkpoint_step"] == 40


def test_checkpoints_that_fail_verification_are_counted(recorder: PrometheusRecorder, metrics: TrainingMetrics) -> None:
    metrics.handle(Restored(step=50, path="c", skipped=["step 100: sha256 differs", "step 150: truncated"]))
    assert values(recorder.url)["rtp_train_checkpoints_refused_total"] == 2


def test_a_first_start_is_not_a_restart(recorder: PrometheusRecorder, metrics: TrainingMetrics) -> None:
    found = values(recorder.url)
    assert found["rtp_train_restarts_total"] == found["rtp_train_lost_steps_total"] == 0


def test_a_second_start_counts_a_restart_and_the_steps_it_lost(
    recorder: PrometheusRecorder, metrics: TrainingMetrics
) -> None:
    metrics.handle(STEP)
    metrics.handle(replace(STARTED, start_step=5))
    found = values(recorder.url)
    assert found["rtp_train_restarts_total"] == 1
    assert found["rtp_train_lost_steps_total"] == 2
    assert found["rtp_train_step"] == 5


def test_restarts_of_earlier_processes_are_counted_from_the_history(recorder: PrometheusRecorder) -> None:
    events = restarted_run()
    last_start = max(index for index, event in enumerate(events) if isinstance(event, TrainingStarted))
    metrics = TrainingMetrics(recorder, run=RUN, history=events[:last_start])
    for event in events[last_start:]:
        metrics.handle(event)
    found = values(recorder.url)
    assert found["rtp_train_restarts_total"] == 2
    assert found["rtp_train_lost_steps_total"] == 31


@pytest.mark.parametrize("first", [0, 200, 240])
def test_wall_time_is_counted_by_class_and_what_a_restart_repeats_beside_it(
    recorder: PrometheusRecorder, first: int
) -> None:
    events = restarted_run()
    metrics = TrainingMetrics(recorder, run=RUN, history=events[:first])
    for event in events[first:]:
        metrics.handle(event)
    found, ledger = values(recorder.url), RunHistory.from_events(events).goodput
    for name, seconds in ledger.counted.items():
        assert found[f'rtp_train_wall_seconds_total{{class="{name}"}}'] == pytest.approx(seconds)
    for name, seconds in ledger.repeated.items():
        assert found[f'rtp_train_repeated_seconds_total{{class="{name}"}}'] == pytest.approx(seconds)
    assert ledger.repeated["productive"] > 0


@pytest.mark.parametrize("first", [1, 240])
def test_dollars_are_counted_by_class_where_the_price_is_known(recorder: PrometheusRecorder, first: int) -> None:
    events = [
        replace(event, dollars_per_hour=7.2) if isinstance(event, RunStarted) else event for event in restarted_run()
    ]
    metrics = TrainingMetrics(recorder, run=RUN, history=events[:first])
    for event in events[first:]:
        metrics.handle(event)
    found, ledger = values(recorder.url), RunHistory.from_events(events).goodput
    names = {name: f'rtp_train_cost_dollars_total{{class="{name}"}}' for name in ledger.counted}
    assert {name for name in names if names[name] not in found} == UNPAID
    assert [found[names[name]] for name in names if name not in UNPAID] == [
        pytest.approx(ledger.counted_dollars[name]) for name in names if name not in UNPAID
    ]
    repeated = found['rtp_train_repeated_dollars_total{class="productive"}']
    assert repeated == pytest.approx(ledger.repeated["productive"] / 500)
    assert repeated > 0


def test_a_run_without_a_price_exports_no_dollars(recorder: PrometheusRecorder) -> None:
    TrainingMetrics(recorder, run=RUN, history=restarted_run())
    assert [name for name in values(recorder.url) if "dollars" in name] == []


def test_what_the_ranks_measured_is_labelled_by_rank(recorder: PrometheusRecorder, metrics: TrainingMetrics) -> None:
    metrics.handle(RANKS)
    metrics.handle(RANKS)
    found = values(recorder.url)
    for rank in (0, 1):
        assert found[f'rtp_train_gpu_utilization_ratio{{rank="{rank}"}}'] == RANKS.gpu_utilization[rank]
        assert (
            found[f'rtp_train_gpu_memory_bytes{{rank="{rank}",state="allocated"}}'] == RANKS.gpu_allocated_bytes[rank]
        )
        assert found[f'rtp_train_gpu_memory_bytes{{rank="{rank}",state="reserved"}}'] == RANKS.gpu_reserved_bytes[rank]
        waited = found[f'rtp_train_rank_communication_seconds_total{{rank="{rank}"}}']
        assert waited == 2 * RANKS.communication_seconds[rank]


def test_a_utilization_that_the_driver_does_not_tell_has_no_series(
    recorder: PrometheusRecorder, metrics: TrainingMetrics
) -> None:
    metrics.handle(replace(RANKS, gpu_utilization=[math.nan, 0.25]))
    found = values(recorder.url)
    assert 'rtp_train_gpu_utilization_ratio{rank="0"}' not in found
    assert found['rtp_train_gpu_utilization_ratio{rank="1"}'] == 0.25


def test_flops_are_those_of_the_samples_of_all_ranks_and_mfu_is_their_share_of_the_peak(
    recorder: PrometheusRecorder, metrics: TrainingMetrics
) -> None:
    metrics.handle(FLOPS)
    metrics.handle(STEP)
    found = values(recorder.url)
    assert found["rtp_train_flops_per_second"] == pytest.approx(FLOPS.per_sample * 3200)
    assert found["rtp_train_mfu_ratio"] == pytest.approx(FLOPS.per_sample * 3200 / FLOPS.peak)


def test_without_a_known_peak_there_is_no_mfu(recorder: PrometheusRecorder, metrics: TrainingMetrics) -> None:
    metrics.handle(replace(FLOPS, peak=0.0))
    metrics.handle(STEP)
    found = values(recorder.url)
    assert found["rtp_train_flops_per_second"] > 0
    assert "rtp_train_mfu_ratio" not in found


def test_the_spool_backlog_is_set(recorder: PrometheusRecorder, metrics: TrainingMetrics) -> None:
    metrics.spool_backlog(4096)
    assert values(recorder.url)["rtp_train_spool_backlog_bytes"] == 4096

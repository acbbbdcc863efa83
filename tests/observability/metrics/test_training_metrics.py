"""The metrics of a run's events, as Prometheus scrapes them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import pytest

from observability.cost import UNPAID
from observability.history import RunHistory
from observability.metrics.prometheus import PrometheusRecorder
from observability.metrics.training_metrics import TrainingMetrics
from observability.runlog import CheckpointUploaded, Evaluated, Event, Restored, RunStarted, TrainingStarted
from tests.observability.metrics.exported import FLOPS, RANKS, RUN, UPLOAD_FAILED, values
from tests.observability.sample_run import restarted_run
from tests.observability.test_goodput import committed, ready, step

STARTED = replace(ready(900.0), total_steps=230, parameters=28_938)
STEP = replace(
    step(7, 1000.5), epoch=2, loss=0.5, gradient_norm=2.0, learning_rate=0.003, samples=64, metrics={"accuracy": 0.75}
)


class Exported:
    """The metrics of a run that has just started, and the exporter that serves them."""

    def __init__(self, recorder: PrometheusRecorder) -> None:
        self._recorder = recorder

    @cached_property
    def metrics(self) -> TrainingMetrics:
        metrics = TrainingMetrics(self._recorder, run=RUN)
        metrics.handle(STARTED)
        return metrics

    def __call__(self, *events: Event, history: list[Event] | None = None) -> dict[str, float]:
        """What is served after more events, without `rtp_train_` before the names; with a history, by a process that begins after it."""
        if history is not None:
            self.metrics = TrainingMetrics(self._recorder, run=RUN, history=history)
        metrics = self.metrics
        for event in events:
            metrics.handle(event)
        return {name.removeprefix("rtp_train_"): value for name, value in values(self._recorder.url).items()}


@pytest.fixture
def recorder() -> Iterator[PrometheusRecorder]:
    server = PrometheusRecorder(host="127.0.0.1", port=0)
    yield server
    server.close()


@pytest.fixture
def exported(recorder: PrometheusRecorder) -> Exported:
    return Exported(recorder)


def assert_has(found: dict[str, float], **expected: float) -> None:
    """Each of these metrics has its value."""
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_the_start_of_training_sets_its_size_and_is_no_restart(exported: Exported) -> None:
    found = exported()
    assert_has(found, planned_steps=230, ranks=2, parameters=28_938, last_step_timestamp_seconds=900)
    assert_has(found, restarts_total=0, lost_steps_total=0)


def test_a_step_sets_the_gauges_and_counts_its_parts(exported: Exported) -> None:
    found = exported(STEP)
    assert_has(found, step=7, epoch=2, loss=0.5, gradient_norm=2.0, learning_rate=0.003)
    assert_has(found, last_step_seconds=2.0, last_step_timestamp_seconds=1000.5, samples_per_second=32)
    assert found['metric{metric="accuracy"}'] == 0.75
    parts = {name: value for name, value in found.items() if name.startswith("step_part_seconds_total")}
    assert parts['step_part_seconds_total{part="data"}'] == pytest.approx(0.3)
    assert parts['step_part_seconds_total{part="other"}'] == pytest.approx(0.1)
    assert sum(parts.values()) == pytest.approx(STEP.seconds)
    speeds = [found[f'rank_samples_per_second{{rank="{rank}"}}'] for rank in (0, 1)]
    assert speeds == pytest.approx([40, 32]), "rank 1 is slower"


def test_a_batch_of_steps_counts_each_and_sets_gauges_from_the_newest(exported: Exported) -> None:
    exported.metrics.handle(replace(STEP, loss=math.nan), replace(STEP, step=8, loss=0.25, seconds=0.002, samples=29))
    found = exported()
    assert_has(found, step=8, loss=0.25, samples_total=93, nonfinite_steps_total=1)
    assert_has(found, step_seconds_count=2, step_seconds_sum=2.002)
    assert found['step_part_seconds_total{part="forward"}'] == pytest.approx(1.0)
    assert [found[f'step_seconds_bucket{{le="{bound}"}}'] for bound in ("0.01", "+Inf")] == [1, 2]
    assert_has(exported(replace(STEP, gradient_norm=math.inf)), nonfinite_steps_total=2)


def test_evaluations_are_labelled_by_split_and_a_late_one_replaces_none_of_a_later_step(exported: Exported) -> None:
    def evaluated(split: str, at_step: int, accuracy: float) -> Evaluated:
        metrics = {"accuracy": accuracy}
        return Evaluated(split=split, step=at_step, epoch=2, loss=1 - accuracy, metrics=metrics, samples=9, seconds=0.2)

    late = replace(evaluated("validation", 5, 0.7), is_asynchronous=True)
    found = exported(evaluated("validation", 7, 0.9), evaluated("test", 7, 0.8), evaluated("validation", 7, 0.95), late)
    assert found['evaluation_metric{metric="accuracy",split="validation"}'] == 0.95
    assert found['evaluation_metric{metric="accuracy",split="test"}'] == 0.8
    assert found['evaluation_loss{split="test"}'] == pytest.approx(0.2)
    assert found['evaluation_loss{split="validation"}'] == pytest.approx(0.05)
    assert found['evaluation_seconds{split="test"}'] == 0.2


def uploaded(step: int) -> CheckpointUploaded:
    return CheckpointUploaded(time=2000.0 + step, step=step, location="s3://b/run", bytes=1024, seconds=0.5)


def test_checkpoints_are_counted_with_their_size_time_and_step(exported: Exported) -> None:
    commit = replace(committed(50), time=2000.0, bytes=1024)
    refused = Restored(step=50, path="c", skipped=["step 100: sha256 differs", "step 150: truncated"])
    late = replace(uploaded(40), time=2060.0)
    found = exported(commit, refused, UPLOAD_FAILED, UPLOAD_FAILED, uploaded(50), late)
    assert_has(found, checkpoints_total=1, checkpoint_bytes=1024, checkpoint_step=50, checkpoints_refused_total=2)
    assert_has(found, checkpoint_timestamp_seconds=2000.0, checkpoint_stall_seconds_sum=0.2)
    assert_has(found, checkpoint_write_seconds_sum=9.0, checkpoint_upload_seconds_sum=1.0)
    assert_has(found, checkpoint_upload_failures_total=2, checkpoint_uploads_total=2)
    assert_has(found, remote_checkpoint_step=50, remote_checkpoint_timestamp_seconds=2050.0)
    # The first upload after a run is set back removes what was copied of the steps that are gone.
    assert_has(exported(replace(STARTED, start_step=30), uploaded(40)), remote_checkpoint_step=40)


@pytest.mark.parametrize(
    ("remote", "uploads", "newest"),
    [
        ("s3://b", [uploaded(50), uploaded(40)], 50),
        ("s3://b", [], 0),
        (None, [uploaded(50)], None),  # it had a bucket when it was last started
    ],
)
def test_a_process_knows_from_the_history_what_the_bucket_has(
    exported: Exported, remote: str | None, uploads: list[Event], newest: int | None
) -> None:
    start = RunStarted(run=RUN, settings={"checkpoint": {"remote": remote}}, environment={})
    found = exported(history=[*uploads, start])
    assert found.get("remote_checkpoint_step") == newest
    assert found.get("remote_checkpoint_timestamp_seconds") == (2050.0 if newest else None)


def test_a_second_start_counts_a_restart_and_the_steps_it_lost(exported: Exported) -> None:
    assert_has(exported(STEP, replace(STARTED, start_step=5)), restarts_total=1, lost_steps_total=2, step=5)


def test_restarts_of_earlier_processes_are_counted_from_the_history(exported: Exported) -> None:
    events = restarted_run()
    last = max(index for index, event in enumerate(events) if isinstance(event, TrainingStarted))
    assert_has(exported(*events[last:], history=events[:last]), restarts_total=2, lost_steps_total=31)


@pytest.mark.parametrize("first", [1, 200, 240])
def test_time_and_dollars_are_counted_by_class_and_what_a_restart_repeats_beside_them(
    exported: Exported, first: int
) -> None:
    """Whatever part of the run an earlier process has counted."""
    events = [
        replace(event, dollars_per_hour=7.2) if isinstance(event, RunStarted) else event for event in restarted_run()
    ]
    found, ledger = exported(*events[first:], history=events[:first]), RunHistory.from_events(events).goodput
    paid = {name: dollars for name, dollars in ledger.counted_dollars.items() if name not in UNPAID}
    for counter, expected in {
        "wall_seconds_total": ledger.counted,
        "repeated_seconds_total": ledger.repeated,
        "cost_dollars_total": paid,
    }.items():
        of_counter = {name: value for name, value in found.items() if name.startswith(counter)}
        assert of_counter == pytest.approx({f'{counter}{{class="{name}"}}': one for name, one in expected.items()})
    repeated = found['repeated_dollars_total{class="productive"}']
    assert repeated == pytest.approx(ledger.repeated["productive"] / 500)
    assert repeated > 0


def test_a_run_without_a_price_exports_no_dollars(exported: Exported) -> None:
    assert [name for name in exported(history=restarted_run()) if "dollars" in name] == []


def test_what_the_ranks_measured_is_labelled_by_rank(exported: Exported) -> None:
    unknown = replace(RANKS, gpu_utilization=[math.nan, 0.25])
    assert 'gpu_utilization_ratio{rank="0"}' not in exported(unknown), "the driver does not tell it"
    found = exported(RANKS)
    for rank in (0, 1):
        assert found[f'gpu_utilization_ratio{{rank="{rank}"}}'] == RANKS.gpu_utilization[rank]
        assert found[f'gpu_memory_bytes{{rank="{rank}",state="allocated"}}'] == RANKS.gpu_allocated_bytes[rank]
        assert found[f'gpu_memory_bytes{{rank="{rank}",state="reserved"}}'] == RANKS.gpu_reserved_bytes[rank]
        waited = found[f'rank_communication_seconds_total{{rank="{rank}"}}']
        assert waited == 2 * RANKS.communication_seconds[rank]


def test_flops_are_those_of_the_samples_of_all_ranks_and_mfu_is_their_share_of_a_known_peak(exported: Exported) -> None:
    unknown = exported(replace(FLOPS, peak=0.0), STEP)
    assert unknown["flops_per_second"] > 0
    assert "mfu_ratio" not in unknown
    flops = FLOPS.per_sample * 32
    assert_has(exported(FLOPS, STEP), flops_per_second=flops, mfu_ratio=flops / FLOPS.peak)


def test_the_spool_backlog_is_set(exported: Exported) -> None:
    exported.metrics.spool_backlog(4096)
    assert_has(exported(), spool_backlog_bytes=4096)

"""The metrics of a training run, computed from its events.

The process that writes the event log also passes each event to `TrainingMetrics.handle`, which looks up each series once and records steps
in batches, so that a step costs microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

from observability.cost import UNPAID
from observability.history import PARTS, RunHistory, part_seconds, units_of
from observability.metrics.recorder import Recorder, Series
from observability.objective_metrics import ObjectiveInfo
from observability.runlog import (
    CheckpointCommitted,
    CheckpointUploaded,
    CheckpointUploadFailed,
    Evaluated,
    Event,
    FlopsCounted,
    RanksMeasured,
    Restored,
    Step,
    TrainingStarted,
    select,
)
from observability.time_classes import TimeClass


class TrainingMetrics:
    """Records a run's events as metrics, in the process of rank 0."""

    def __init__(self, recorder: Recorder, *, run: str, history: Iterable[Event] = ()) -> None:
        """Bind the series of a run.

        Args:
            recorder: receives the values.
            run: value of the label `run`.
            history: events of the run's earlier attempts, whose restarts and lost steps the counters include.
        """
        self._recorder = recorder
        self._run = run
        bind = recorder.bind
        past = RunHistory.from_events(history)
        self._step = bind("rtp_train_step", run=run)
        self._epoch = bind("rtp_train_epoch", run=run)
        self._timestamp = bind("rtp_train_last_step_timestamp_seconds", run=run)
        self._step_seconds = bind("rtp_train_step_seconds", run=run)
        self._last_step_seconds = bind("rtp_train_last_step_seconds", run=run)
        self._parts = [bind("rtp_train_step_part_seconds_total", run=run, part=part) for part in PARTS]
        self._samples = bind("rtp_train_samples_total", run=run)
        self._samples_per_second = bind("rtp_train_samples_per_second", run=run)
        self._units: Series | None = None
        self._rank_samples_per_second: list[Series] = []
        self._loss = bind("rtp_train_loss", run=run)
        self._gradient_norm = bind("rtp_train_gradient_norm", run=run)
        self._learning_rate = bind("rtp_train_learning_rate", run=run)
        self._nonfinite = bind("rtp_train_nonfinite_steps_total", run=run)
        self._flops: FlopsCounted | None = None
        self._has_trained = past.training is not None
        self._last_step = past.last_step
        self._evaluated_steps = {evaluation.split: evaluation.step for evaluation in past.evaluations}
        self._uploaded = 0
        self._record_bucket(past)
        self._goodput = past.goodput
        self._wall_seconds = self._growing("wall_seconds", past.goodput.counted)
        self._repeated_seconds = self._growing("repeated_seconds", past.goodput.repeated)
        self._cost: tuple[_Growing, _Growing] | None = None
        self._record_goodput()
        recorder.add("rtp_train_restarts_total", len(past.restarts), run=run)
        recorder.add("rtp_train_lost_steps_total", past.lost_steps, run=run)

    def handle(self, *events: Event) -> None:
        """Record events, oldest first; steps are recorded before the others, and events without a metric are ignored."""
        if steps := select(events, Step):
            self._record_steps(steps)
        for event in events:
            match event:
                case Evaluated():
                    self._record_evaluation(event)
                case CheckpointCommitted() | CheckpointUploaded() | CheckpointUploadFailed() | Restored():
                    self._record_checkpoint(event)
                case TrainingStarted():
                    self._record_start(event)
                case FlopsCounted():
                    self._flops = event
                case RanksMeasured():
                    self._record_ranks(event)
        for event in events:
            self._goodput.add(event)
        self._record_goodput()

    def spool_backlog(self, backlog_bytes: int) -> None:
        """Record how many bytes of the event log are not yet delivered to the tracking server."""
        self._recorder.set("rtp_train_spool_backlog_bytes", backlog_bytes, run=self._run)

    def _record_goodput(self) -> None:
        """Record the time that was accounted since the last call, and its cost if a price is known."""
        ledger = self._goodput
        self._wall_seconds.record(ledger.counted)
        self._repeated_seconds.record(ledger.repeated)
        if ledger.cost is None:
            return
        if self._cost is None:
            paid = [name for name in ledger.counted if name not in UNPAID]
            self._cost = self._growing("cost_dollars", paid), self._growing("repeated_dollars", ledger.repeated)
        for series, sums in zip(self._cost, (ledger.counted_dollars, ledger.repeated_dollars), strict=True):
            series.record(sums)

    def _growing(self, name: str, classes: Iterable[TimeClass]) -> _Growing:
        """The series of a counter by class of wall time."""
        labels = {"run": self._run}
        return _Growing(
            {one: self._recorder.bind(f"rtp_train_{name}_total", **labels, **{"class": one}) for one in classes}
        )

    def _record_start(self, event: TrainingStarted) -> None:
        """Record that all ranks are ready; after an earlier attempt, also count a restart and the steps it lost."""
        recorder, run = self._recorder, self._run
        if self._has_trained:
            recorder.add("rtp_train_restarts_total", run=run)
            recorder.add("rtp_train_lost_steps_total", max(0, self._last_step - event.start_step), run=run)
        self._has_trained, self._last_step = True, event.start_step
        self._uploaded = min(self._uploaded, event.start_step)
        self._evaluated_steps = {split: min(step, event.start_step) for split, step in self._evaluated_steps.items()}
        recorder.set("rtp_train_planned_steps", event.total_steps, run=run)
        recorder.set("rtp_train_ranks", event.world, run=run)
        recorder.set("rtp_train_parameters", event.parameters, run=run)
        self._rank_samples_per_second = [
            recorder.bind("rtp_train_rank_samples_per_second", run=run, rank=str(rank)) for rank in range(event.world)
        ]
        unit = ObjectiveInfo.of(event.objective).unit
        self._units = recorder.bind("rtp_train_units_total", run=run, unit=unit)
        self._step(event.start_step)
        self._timestamp(event.time)

    def _record_steps(self, steps: Sequence[Step]) -> None:
        """Record one or more optimizer steps: all of them in counters and histograms, the newest in gauges."""
        for step in steps:
            self._step_seconds(step.seconds)
        for series, part in zip(self._parts, zip(*map(part_seconds, steps), strict=True), strict=True):
            series(sum(part))
        self._samples(sum(step.samples for step in steps))
        if self._units is not None:
            self._units(sum(map(units_of, steps)))
        self._nonfinite(sum(not (isfinite(step.loss) and isfinite(step.gradient_norm)) for step in steps))
        newest = steps[-1]
        self._last_step = newest.step
        self._step(newest.step)
        self._epoch(newest.epoch)
        self._timestamp(newest.time)
        self._last_step_seconds(newest.seconds)
        self._samples_per_second(newest.samples / newest.seconds)
        if self._flops is not None:
            self._record_flops(self._flops, newest)
        share = newest.samples / max(1, len(newest.rank_seconds))
        for series, seconds in zip(self._rank_samples_per_second, newest.rank_seconds, strict=False):
            series(share / seconds)
        self._loss(newest.loss)
        for name, value in newest.metrics.items():
            self._recorder.set("rtp_train_metric", value, run=self._run, metric=name)
        self._gradient_norm(newest.gradient_norm)
        self._learning_rate(newest.learning_rate)

    def _record_flops(self, flops: FlopsCounted, step: Step) -> None:
        """Record the FLOP/s of a step, and MFU where the peak is known."""
        rate = flops.per_sample * step.samples / step.seconds
        self._recorder.set("rtp_train_flops_per_second", rate, run=self._run)
        if flops.peak:
            self._recorder.set("rtp_train_mfu_ratio", rate / flops.peak, run=self._run)

    def _record_ranks(self, event: RanksMeasured) -> None:
        """Record what the ranks measured of themselves."""
        recorder, run = self._recorder, self._run
        for rank, seconds in enumerate(event.communication_seconds):
            recorder.add("rtp_train_rank_communication_seconds_total", seconds, run=run, rank=str(rank))
        for rank, ratio in enumerate(event.gpu_utilization):
            if isfinite(ratio):
                recorder.set("rtp_train_gpu_utilization_ratio", ratio, run=run, rank=str(rank))
        memory = {"allocated": event.gpu_allocated_bytes, "reserved": event.gpu_reserved_bytes}
        for state, sizes in memory.items():
            for rank, size in enumerate(sizes):
                recorder.set("rtp_train_gpu_memory_bytes", size, run=run, rank=str(rank), state=state)

    def _record_evaluation(self, event: Evaluated) -> None:
        """Record an evaluation of a split, unless one of a later step came first: an asynchronous one may be late."""
        if event.step < self._evaluated_steps.get(event.split, 0):
            return
        self._evaluated_steps[event.split] = event.step
        labels = {"run": self._run, "split": event.split}
        self._recorder.set("rtp_train_evaluation_loss", event.loss, **labels)
        for name, value in event.metrics.items():
            self._recorder.set("rtp_train_evaluation_metric", value, metric=name, **labels)
        self._recorder.set("rtp_train_evaluation_seconds", event.seconds, **labels)

    def _record_checkpoint(
        self, event: CheckpointCommitted | CheckpointUploaded | CheckpointUploadFailed | Restored
    ) -> None:
        match event:
            case CheckpointCommitted():
                self._record_commit(event)
            case CheckpointUploaded():
                self._record_upload(event)
            case CheckpointUploadFailed():
                self._recorder.add("rtp_train_checkpoint_upload_failures_total", run=self._run)
            case Restored():
                self._record_restore(event)

    def _record_commit(self, event: CheckpointCommitted) -> None:
        """Record a checkpoint commit."""
        recorder, run = self._recorder, self._run
        recorder.add("rtp_train_checkpoints_total", run=run)
        recorder.observe("rtp_train_checkpoint_stall_seconds", event.stall_seconds, run=run)
        recorder.observe("rtp_train_checkpoint_write_seconds", event.write_seconds, run=run)
        recorder.set("rtp_train_checkpoint_bytes", event.bytes, run=run)
        recorder.set("rtp_train_checkpoint_step", event.step, run=run)
        recorder.set("rtp_train_checkpoint_timestamp_seconds", event.time, run=run)

    def _record_upload(self, event: CheckpointUploaded) -> None:
        """Record a copy to the bucket. Of a run that lags behind, older ones may follow the newest."""
        recorder, run = self._recorder, self._run
        recorder.add("rtp_train_checkpoint_uploads_total", run=run)
        recorder.observe("rtp_train_checkpoint_upload_seconds", event.seconds, run=run)
        if event.step >= self._uploaded:
            self._record_newest_upload(event)

    def _record_newest_upload(self, event: CheckpointUploaded) -> None:
        self._uploaded = event.step
        self._recorder.set("rtp_train_remote_checkpoint_step", event.step, run=self._run)
        self._recorder.set("rtp_train_remote_checkpoint_timestamp_seconds", event.time, run=self._run)

    def _record_bucket(self, past: RunHistory) -> None:
        """Record what a run's bucket has before this process copies anything, so that one that never gets anything is seen too."""
        if not past.setting("checkpoint.remote"):
            return
        if past.uploads:
            self._record_newest_upload(past.uploads[-1])
        else:
            self._recorder.set("rtp_train_remote_checkpoint_step", 0, run=self._run)

    def _record_restore(self, event: Restored) -> None:
        """Count the checkpoints that failed verification during a restore."""
        self._recorder.add("rtp_train_checkpoints_refused_total", len(event.skipped), run=self._run)


class _Growing:
    """Counters by class, whose sums are known."""

    def __init__(self, series: Mapping[TimeClass, Series]) -> None:
        self._series = series
        self._recorded = dict.fromkeys(series, 0.0)
        for add in series.values():
            add(0.0)

    def record(self, sums: Mapping[TimeClass, float]) -> None:
        """Add what the sums have grown by."""
        for name, add in self._series.items():
            if sums[name] > self._recorded[name]:
                add(sums[name] - self._recorded[name])
                self._recorded[name] = sums[name]

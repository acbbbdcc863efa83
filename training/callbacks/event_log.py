"""Reports the loop: steps, evaluations, checkpoints and warnings, as events of the run's log."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from observability.objective_metrics import Metric, ObjectiveInfo
from observability.runlog import CheckpointCommitted, Emit, Evaluated, Notice, Phase, Step, TrainingStarted
from observability.uptime import BOOT
from training.callbacks.callback import Callback
from training.checkpoint.manifest import TrainProgress
from training.checkpoint.writer import CommittedCheckpoint
from training.data.types import DataBundle
from training.evaluate import EvaluationResult
from training.loop import Loop, StepRecord
from training.objectives.objective import Objective
from training.step import StepResult
from training.step_reducer import StepSums


class EventLog(Callback):
    """Emits an event for everything that happens in the loop. `emit` is a no-op on ranks other than 0."""

    def __init__(self, emit: Emit, *, objective: Objective, ranked_by: Metric, bundle: DataBundle, world: int) -> None:
        """Args: `ranked_by` is the metric that ranks the checkpoints."""
        self._emit = emit
        self._objective = objective
        self._info = ObjectiveInfo(metrics=objective.metrics, ranked_by=ranked_by.name, unit=objective.unit)
        self._bundle = bundle
        self._world = world
        self._unmeasured: set[str] = set()

    def on_run_start(self, loop: Loop) -> None:
        """All ranks are ready."""
        self._emit(
            TrainingStarted(
                world=self._world,
                start_step=loop.progress.step,
                total_steps=loop.total_steps,
                steps_per_epoch=loop.plan.steps_per_epoch,
                parameters=loop.parameters,
                train_samples=len(self._bundle.train),
                dataset_fingerprint=self._bundle.fingerprint,
                objective=self._info.record(),
            )
        )

    def on_bad_step(self, loop: Loop, step: int, result: StepResult) -> None:
        """A step was skipped."""
        self._emit(Notice(level="warning", message=f"step {step}: gradient not finite, step skipped"))

    def on_window(self, loop: Loop, steps: Sequence[StepRecord], sums: Sequence[StepSums]) -> None:
        """The steps of a window, all at once."""
        self._emit(*map(self._step, steps, sums))

    def on_evaluation(self, loop: Loop, split: str, result: EvaluationResult, at: TrainProgress) -> None:
        """The metrics of a split, and a warning about each one that is no number, once."""
        others = dict(result.metrics)
        for name in sorted(name for name, value in others.items() if isnan(value) and name not in self._unmeasured):
            self._unmeasured.add(name)
            ranks = ", so it ranks no checkpoint" if name == self._info.ranked_by and split == "validation" else ""
            message = f"{name} of the {split} split is NaN after step {at.step}{ranks}"
            self._emit(Notice(level="warning", message=message))
        self._emit(
            Evaluated(
                split=split,
                step=at.step,
                epoch=at.epoch,
                loss=others.pop("loss"),
                metrics=others,
                samples=result.samples,
                seconds=result.seconds,
                is_asynchronous=result.is_asynchronous,
            )
        )

    def on_checkpoint(self, loop: Loop, checkpoint: CommittedCheckpoint) -> None:
        """A committed checkpoint, and warnings."""
        self._emit(
            CheckpointCommitted(
                step=checkpoint.step,
                path=str(checkpoint.path),
                bytes=checkpoint.bytes,
                stall_seconds=checkpoint.stall_seconds,
                write_seconds=checkpoint.write_seconds,
            )
        )
        for warning in checkpoint.warnings:
            self._emit(Notice(level="warning", message=warning))
        if checkpoint.superseded:
            steps = ", ".join(map(str, checkpoint.superseded))
            self._emit(
                Notice(
                    level="warning",
                    message=f"storage is slower than checkpoint.every_steps: step {checkpoint.step} replaced "
                    f"the checkpoints of steps {steps}",
                )
            )

    def on_train_end(self, loop: Loop) -> None:
        """The run finishes."""
        self._emit(Phase(name="finish", process="rank 0"))

    def _step(self, step: StepRecord, sums: StepSums) -> Step:
        metrics = self._objective.summarize(sums.sums, sums.weight)
        return Step(
            time=step.time,
            uptime=step.uptime,
            boot=BOOT,
            step=step.step,
            epoch=step.epoch,
            loss=metrics.pop("loss"),
            metrics=metrics,
            gradient_norm=step.result.gradient_norm,
            learning_rate=step.learning_rate,
            samples=sums.samples,
            units=0.0 if self._objective.unit == "samples" else sums.weight,
            seconds=step.seconds,
            data_seconds=step.data_seconds,
            forward_seconds=step.result.forward_seconds,
            backward_seconds=step.result.backward_seconds,
            communication_seconds=step.result.communication_seconds,
            optimizer_seconds=step.result.optimizer_seconds,
            checkpoint_seconds=step.checkpoint_seconds,
            rank_seconds=sums.rank_seconds,
        )

"""The training loop: epochs of optimizer steps, evaluations, checkpoints, and a stop that every rank takes at the same step.

Steps are reported a window at a time (`training.pulse`), and before anything else is: a checkpoint's steps stand in the log before it.

Read `Loop.run` first; it reads top to bottom. The loop knows nothing of launchers, files or servers: it is handed the parts that do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from observability.runlog import Emit, Evaluated, Notice, Step
from training.checkpoint.manifest import TrainProgress
from training.checkpoint.retention import Retention
from training.config.schema import TrainingSettings
from training.data.loader import EvalLoader, TrainLoader
from training.data.order import BatchPlan
from training.data.types import Batch
from training.errors import NonFiniteLossError
from training.evaluate import EvaluationResult, evaluate
from training.ledger import LedgerWriter
from training.logs import set_step
from training.optim import learning_rate_at, set_learning_rate
from training.precision import Precision
from training.pulse import Pulse, StepSums
from training.step import StepResult, StepRunner


@dataclass(frozen=True, kw_only=True)
class LoopParts:
    """What the loop works with.

    Attributes:
        module: the bare model, for evaluation.
        peak_rate: learning rate after scaling, which the schedule is a fraction of.
        save: called on every rank at a step boundary with the loop and the metric of an evaluation just done (None between
            evaluations); returns the seconds that the loop was held up.
        reserve: called once, after the first step, when the optimizer has its state: the time to set memory aside for saving it.
        emit: takes events, several at a time; does something on rank 0 only.
        wants_stop: whether this rank was asked to stop; the ranks agree by vote.
    """

    settings: TrainingSettings
    runner: StepRunner
    module: nn.Module
    optimizer: torch.optim.Optimizer
    precision: Precision
    pulse: Pulse
    plan: BatchPlan
    train: TrainLoader
    validation: EvalLoader
    device: torch.device
    peak_rate: float
    save: Callable[[Loop, float | None], float]
    reserve: Callable[[], None]
    emit: Emit
    wants_stop: Callable[[], bool]
    ledger: LedgerWriter | None


@dataclass(frozen=True, kw_only=True)
class _DoneStep:
    """What this rank alone knows of a step that is yet to be reported."""

    step: int
    epoch: int
    time: float
    learning_rate: float
    result: StepResult
    seconds: float
    data_seconds: float
    checkpoint_seconds: float


@dataclass(kw_only=True)
class Loop:
    """The state of a run in this process: where it stands, and the best evaluations so far, best first."""

    parts: LoopParts
    progress: TrainProgress
    best_metrics: list[float] = field(default_factory=list)
    _done: list[_DoneStep] = field(default_factory=list, init=False)
    _stop_agreed: bool = field(default=False, init=False)
    _is_reserved: bool = field(default=False, init=False)

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return planned_steps(self.parts.settings, self.parts.plan)

    def run(self) -> bool:
        """Train from `progress` to the end. True when done, False when stopped early at a step boundary.

        The caller commits the final state in both cases: `progress` says where it stands.

        Raises:
            NonFiniteLossError: a step went bad and the setting is to stop.
        """
        while self.progress.step < self.total_steps and not self._stop_agreed:
            if not self._run_epoch():
                return False
            is_due = self._is_save_due()
            metric = None
            if self._is_evaluation_due():
                metric = self._validate()
                is_due = is_due or self._ranks_among_best(metric)
            if is_due:
                self.parts.save(self, metric)
            if self.progress.step < self.total_steps:
                self.progress = replace(self.progress, epoch=self.progress.epoch + 1, step_in_epoch=0)
        return self.progress.step >= self.total_steps

    def _run_epoch(self) -> bool:
        """The rest of the current epoch; False when it was left for a stop. The save at its last step is left to the caller."""
        began = asked = time.perf_counter()
        stall = 0.0
        for micro_batches in self.parts.train.epoch(self.progress.epoch - 1, self.progress.step_in_epoch):
            self._step(micro_batches, began=began, data_seconds=time.perf_counter() - asked, checkpoint_seconds=stall)
            began = time.perf_counter()
            stall = 0.0
            if self.progress.step >= self.total_steps:
                break
            if self.progress.step_in_epoch < self.parts.plan.steps_per_epoch:
                is_save_due = self._is_save_due()
                if is_save_due or self.parts.pulse.is_due:
                    self._settle()
                if self._stop_agreed:
                    return False
                if is_save_due:
                    stall = self.parts.save(self, None)
            asked = time.perf_counter()
        self._settle()
        return True

    def _is_save_due(self) -> bool:
        return self.progress.step % self.parts.settings.checkpoint.every_steps == 0

    def _is_evaluation_due(self) -> bool:
        is_last = self.progress.step >= self.total_steps
        return is_last or self.progress.epoch % self.parts.settings.loop.evaluate_every == 0

    def _ranks_among_best(self, metric: float) -> bool:
        """Whether an evaluation belongs to the best that are kept; if so it takes its place among them."""
        settings = self.parts.settings.checkpoint
        is_higher_better = Retention.of(settings).higher_is_better
        ranked = sorted([*self.best_metrics, metric], reverse=is_higher_better)[: settings.keep_best]
        if ranked == self.best_metrics:
            return False
        self.best_metrics = ranked
        return True

    def _step(
        self, micro_batches: list[Batch], *, began: float, data_seconds: float, checkpoint_seconds: float
    ) -> None:
        """Do a step that began, with what kept it, when the one before it ended."""
        parts, progress = self.parts, self.progress
        step, epoch = progress.step + 1, progress.epoch
        set_step(step)
        rate = learning_rate_at(
            progress.step,
            settings=parts.settings.schedule,
            peak=parts.peak_rate,
            total_steps=self.total_steps,
            steps_per_epoch=parts.plan.steps_per_epoch,
        )
        set_learning_rate(parts.optimizer, rate)
        count = parts.plan.global_count(progress.step_in_epoch)
        result = parts.runner.run(step, micro_batches, global_count=count)
        if not result.applied:
            self._bad_step(step, result)
        if parts.ledger is not None:
            parts.ledger.record(step=step, epoch=epoch, micro_batches=micro_batches)
        done = _DoneStep(
            step=step,
            epoch=epoch,
            time=time.time(),
            learning_rate=rate,
            result=result,
            seconds=time.perf_counter() - began,
            data_seconds=data_seconds,
            checkpoint_seconds=checkpoint_seconds,
        )
        self._done.append(done)
        parts.pulse.add(
            loss_sum=result.loss_sum,
            correct=result.correct,
            samples=result.samples,
            own_seconds=data_seconds + result.forward_seconds,
            seconds=done.seconds,
        )
        self.progress = TrainProgress(
            step=step, epoch=epoch, step_in_epoch=progress.step_in_epoch + 1, samples=progress.samples + count
        )
        if not self._is_reserved:
            self._is_reserved = True
            parts.reserve()

    def _settle(self) -> None:
        """Close the window: agree on whether to stop, and report its steps."""
        if not self._done:
            return
        window = self.parts.pulse.exchange(wants_stop=self.parts.wants_stop())
        self._stop_agreed = window.stop_votes > 0
        self.parts.emit(*map(_report, self._done, window.steps))
        self._done.clear()

    def _bad_step(self, step: int, result: StepResult) -> None:
        if self.parts.precision.scales_gradients and not math.isnan(result.loss_sum):
            return  # an overflow that the gradient scaler found and answers by a lower scale
        if self.parts.settings.loop.nonfinite == "stop":
            if not self.parts.precision.scales_gradients:  # else the peers may take it for an overflow, and go on
                self._settle()
            raise NonFiniteLossError(
                f"step {step}: the gradient is not finite (norm {result.gradient_norm}, loss sum "
                f"{result.loss_sum:.6g} on this rank); loop.nonfinite=stop ends the run before the weights change",
                remedy="lower optimizer.learning_rate, look at this step's samples (loop.log_sample_ids=true), or set "
                "loop.nonfinite=skip; the newest checkpoint is from before this step",
            )
        self.parts.emit(Notice(level="warning", message=f"step {step}: gradient not finite, step skipped"))

    def evaluate(self, split: str, loader: EvalLoader) -> EvaluationResult:
        """Evaluate the model as it stands on a split and report it."""
        started = time.perf_counter()
        parts = self.parts
        result = evaluate(
            parts.module, loader, precision=parts.precision, device=parts.device, world=parts.settings.scale.workers
        )
        parts.emit(
            Evaluated(
                split=split,
                step=self.progress.step,
                epoch=self.progress.epoch,
                loss=result.loss,
                accuracy=result.accuracy,
                samples=result.samples,
                seconds=time.perf_counter() - started,
            )
        )
        return result

    def _validate(self) -> float:
        """Evaluate on the validation split; returns the metric that ranks checkpoints."""
        result = self.evaluate("validation", self.parts.validation)
        is_accuracy = self.parts.settings.checkpoint.best_metric == "validation_accuracy"
        return result.accuracy if is_accuracy else result.loss


def _report(done: _DoneStep, sums: StepSums) -> Step:
    return Step(
        time=done.time,
        step=done.step,
        epoch=done.epoch,
        loss=sums.loss_sum / sums.samples,
        accuracy=sums.correct / sums.samples,
        gradient_norm=done.result.gradient_norm,
        learning_rate=done.learning_rate,
        samples=sums.samples,
        seconds=done.seconds,
        data_seconds=done.data_seconds,
        forward_seconds=done.result.forward_seconds,
        backward_seconds=done.result.backward_seconds,
        optimizer_seconds=done.result.optimizer_seconds,
        checkpoint_seconds=done.checkpoint_seconds,
        rank_seconds=sums.rank_seconds,
    )


def planned_steps(settings: TrainingSettings, plan: BatchPlan) -> int:
    """Optimizer steps of a run: all its epochs, or fewer where `loop.max_steps` says so."""
    steps = settings.loop.epochs * plan.steps_per_epoch
    return min(steps, settings.loop.max_steps or steps)

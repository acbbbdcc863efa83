"""The training loop: epochs of optimizer steps, evaluations, checkpoints, and a stop that every rank takes at the same step.

Read `Loop.run` first; it reads top to bottom. The loop knows nothing of launchers, files or servers: it is handed the parts that do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from observability.runlog import Evaluated, Event, Notice, Step
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
from training.pulse import Pulse
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
        emit: takes events; does something on rank 0 only.
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
    emit: Callable[[Event], None]
    wants_stop: Callable[[], bool]
    ledger: LedgerWriter | None


@dataclass(kw_only=True)
class _PendingStep:
    """A step whose sums are still on the wire."""

    step: int
    epoch: int
    learning_rate: float
    result: StepResult
    data_seconds: float
    seconds: float
    checkpoint_seconds: float = 0.0


@dataclass(kw_only=True)
class Loop:
    """The state of a run in this process: where it stands, and the best evaluations so far, best first."""

    parts: LoopParts
    progress: TrainProgress
    best_metrics: list[float] = field(default_factory=list)
    _pending: _PendingStep | None = field(default=None, init=False)
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
        while self.progress.step < self.total_steps:
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
        return True

    def _run_epoch(self) -> bool:
        """The rest of the current epoch; False when a stop was agreed on. The save at its last step is left to the caller."""
        asked = time.perf_counter()
        for micro_batches in self.parts.train.epoch(self.progress.epoch - 1, self.progress.step_in_epoch):
            self._step(micro_batches, data_seconds=time.perf_counter() - asked, started=asked)
            if self._stop_agreed:
                self._settle()
                return False
            if self.progress.step >= self.total_steps:
                break
            asked = time.perf_counter()
            if self._is_save_due() and self.progress.step_in_epoch < self.parts.plan.steps_per_epoch:
                self._charge(self.parts.save(self, None))
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

    def _charge(self, stall: float) -> None:
        if self._pending is not None:
            self._pending.checkpoint_seconds += stall

    def _step(self, micro_batches: list[Batch], *, data_seconds: float, started: float) -> None:
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
        self._settle()
        own_seconds = data_seconds + result.forward_seconds
        parts.pulse.start(
            loss_sum=result.loss_sum,
            correct=result.correct,
            samples=result.samples,
            wants_stop=parts.wants_stop(),
            seconds=own_seconds,
        )
        self._pending = _PendingStep(
            step=step,
            epoch=epoch,
            learning_rate=rate,
            result=result,
            data_seconds=data_seconds,
            seconds=time.perf_counter() - started,
        )
        self.progress = TrainProgress(
            step=step, epoch=epoch, step_in_epoch=progress.step_in_epoch + 1, samples=progress.samples + count
        )
        if not self._is_reserved:
            self._is_reserved = True
            parts.reserve()

    def _settle(self) -> None:
        """Read the sums of the step before and report it."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        sums = self.parts.pulse.wait()
        self._stop_agreed = self._stop_agreed or sums.stop_votes > 0
        result = pending.result
        self.parts.emit(
            Step(
                step=pending.step,
                epoch=pending.epoch,
                loss=sums.loss_sum / sums.samples,
                accuracy=sums.correct / sums.samples,
                gradient_norm=result.gradient_norm,
                learning_rate=pending.learning_rate,
                samples=sums.samples,
                seconds=pending.seconds + pending.checkpoint_seconds,
                data_seconds=pending.data_seconds,
                forward_seconds=result.forward_seconds,
                backward_seconds=result.backward_seconds,
                optimizer_seconds=result.optimizer_seconds,
                checkpoint_seconds=pending.checkpoint_seconds,
                rank_seconds=sums.rank_seconds,
            )
        )

    def _bad_step(self, step: int, result: StepResult) -> None:
        if self.parts.precision.scales_gradients and not math.isnan(float(result.loss_sum)):
            return  # an overflow that the gradient scaler found and answers by a lower scale
        if self.parts.settings.loop.nonfinite == "stop":
            raise NonFiniteLossError(
                f"step {step}: the gradient is not finite (norm {result.gradient_norm}, loss sum "
                f"{float(result.loss_sum):.6g} on this rank); loop.nonfinite=stop ends the run before the weights change",
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


def planned_steps(settings: TrainingSettings, plan: BatchPlan) -> int:
    """Optimizer steps of a run: all its epochs, or fewer where `loop.max_steps` says so."""
    steps = settings.loop.epochs * plan.steps_per_epoch
    return min(steps, settings.loop.max_steps or steps)

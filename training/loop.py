"""The training loop: epochs of optimizer steps, and a stop that every rank takes at the same step.

Read `Loop.run` first; it reads top to bottom. Evaluation, checkpoints and reports are callbacks (`training.callbacks.callback` lists the
points at which they are called). Steps are reported a window at a time (`training.step_reducer`), and before anything else: the log
has a checkpoint's steps before the checkpoint.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import nn

from observability.uptime import uptime
from training.callbacks.callback import Callback, Hooks
from training.checkpoint.manifest import TrainProgress
from training.config.schema import LoopSettings
from training.data.loader import TrainLoader
from training.data.order import BatchPlan
from training.data.types import Batch
from training.errors import DataError, NonFiniteLossError, SettingsError
from training.logs import set_step
from training.optim import set_learning_rate
from training.step import StepResult, StepRunner
from training.step_reducer import StepReducer, Window


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """A step on this rank; `result` has its part of the sums."""

    step: int
    epoch: int
    time: float
    uptime: float | None
    learning_rate: float
    result: StepResult
    seconds: float
    data_seconds: float
    checkpoint_seconds: float


class Loop:
    """A run in this process, from its current step to its end.

    Attributes:
        progress: how far the run has come.
        total_steps: optimizer steps of the whole run.
        plan: how epochs are cut into steps.
        module: the bare model; in a pipeline this rank's part of it.
        parameters: of the whole model.
        hooks: the callbacks' hooks.
        checkpoint_seconds: how long a checkpoint delayed the next step.
        window: the newest window; None before the first.
    """

    def __init__(
        self,
        *,
        settings: LoopSettings,
        plan: BatchPlan,
        train: TrainLoader,
        runner: StepRunner,
        reducer: StepReducer,
        learning_rate: Callable[[int], float],
        callbacks: Sequence[Callback],
        progress: TrainProgress,
        wants_stop: Callable[[], bool],
    ) -> None:
        """Args: `learning_rate` maps the number of steps done to the next step's rate, `wants_stop` is this rank's vote."""
        self.progress = progress
        self.total_steps = planned_steps(settings, plan)
        self.plan = plan
        self.module: nn.Module = runner.strategy.module
        self.parameters = runner.strategy.parameters
        self.hooks = Hooks(callbacks)
        self.checkpoint_seconds = 0.0
        self.window: Window | None = None
        self._settings = settings
        self._train = train
        self._runner = runner
        self._reducer = reducer
        self._learning_rate = learning_rate
        self._wants_stop = wants_stop
        self._unreported: list[StepRecord] = []
        self._stop_agreed = False

    @property
    def is_done(self) -> bool:
        """Whether all steps are done."""
        return self.progress.step >= self.total_steps

    def run(self) -> None:
        """Train from `progress` to the end, or to the step at which the ranks agree to stop; `is_done` tells which.

        Raises:
            NonFiniteLossError: a step was not finite under loop.nonfinite=stop.
        """
        for run_start in self.hooks.run_start:
            run_start(self)
        while not self.is_done and not self._stop_agreed:
            if not self._run_epoch():
                break
            for epoch_end in self.hooks.epoch_end:
                epoch_end(self)
            if not self.is_done:
                self.progress = replace(self.progress, epoch=self.progress.epoch + 1, step_in_epoch=0)
                self._stop_agreed |= any(stops(self) for stops in self.hooks.stops_before_epoch)
        for train_end in self.hooks.train_end:
            train_end(self)
        for run_end in self.hooks.run_end:
            run_end(self)

    def _run_epoch(self) -> bool:
        """Run the rest of the current epoch; False if the ranks agreed to stop before its last step."""
        asked = time.perf_counter()
        began = asked - self.checkpoint_seconds  # that of a checkpoint after the epoch before
        for micro_batches in self._train.epoch(self.progress.epoch - 1, self.progress.step_in_epoch):
            self._step(micro_batches, began=began, data_seconds=time.perf_counter() - asked)
            began = time.perf_counter()
            self.checkpoint_seconds = 0.0
            if self.is_done:
                break
            if self.progress.step_in_epoch < self.plan.steps_per_epoch:
                due = [act for is_due, act in self.hooks.due if is_due(self)]
                if due or self._reducer.is_due:
                    self._settle()
                if self._stop_agreed:
                    return False
                for act in due:
                    act(self)
            asked = time.perf_counter()
        self._settle()
        if not self.is_done and self.progress.step_in_epoch < self.plan.steps_per_epoch:
            raise DataError(
                f"epoch {self.progress.epoch} ended after {self.progress.step_in_epoch} of its {self.plan.steps_per_epoch} steps",
                remedy="the reader of the data has ended early; report it with the dataset's code",
            )
        return True

    def _step(self, micro_batches: list[Batch], *, began: float, data_seconds: float) -> None:
        """Do the step that began when the previous one ended."""
        for step_start in self.hooks.step_start:
            step_start(self, micro_batches)
        progress = self.progress
        step = progress.step + 1
        set_step(step)
        rate = self._learning_rate(progress.step)
        set_learning_rate(self._runner.strategy.optimizer, rate)
        count = self.plan.global_count(progress.step_in_epoch)
        result = self._runner.run(step, micro_batches, global_count=count)
        if not result.applied:
            self._bad_step(step, result)
        self.progress = TrainProgress(
            step=step,
            epoch=progress.epoch,
            step_in_epoch=progress.step_in_epoch + 1,
            samples=progress.samples + count,
            skipped=progress.skipped + (not result.applied),
            learning_rate=rate,
        )
        for step_end in self.hooks.step_end:
            step_end(self, micro_batches, result)
        seconds = time.perf_counter() - began
        self._unreported.append(
            StepRecord(
                step=step,
                epoch=progress.epoch,
                time=time.time(),
                uptime=uptime(),
                learning_rate=rate,
                result=result,
                seconds=seconds,
                data_seconds=data_seconds,
                checkpoint_seconds=self.checkpoint_seconds,
            )
        )
        self._reducer.add(
            sums=result.sums,
            weight=result.weight,
            samples=result.samples,
            own_seconds=data_seconds + result.forward_seconds,
            communication_seconds=result.communication_seconds,
            seconds=seconds,
        )

    def _settle(self) -> None:
        """Close the window: sum its steps over the ranks, agree on whether to stop and on what a rank asks for, and report it."""
        if not self._unreported:
            return
        asks = [asks(self) for asks, _ in self.hooks.asked]
        window = self.window = self._reducer.reduce(
            wants_stop=self._wants_stop(), asks=asks, pass_order=self._runner.strategy.pass_order
        )
        self._check_pass_order(window)
        self._stop_agreed = window.stop_votes > 0
        for report in self.hooks.window:
            report(self, self._unreported, window.steps)
        self._unreported.clear()
        for (_, act), number in zip(self.hooks.asked, window.asked, strict=True):
            if number:
                act(self, number)

    def _check_pass_order(self, window: Window) -> None:
        """Check that the ranks have gathered the same weights: before anything is saved of a window's steps.

        Raises:
            SettingsError: they have not.
        """
        if len({rank.pass_order for rank in window.ranks}) > 1:
            raise SettingsError(
                f"model.name: in steps {self._unreported[0].step} to {self.progress.step} the ranks used different blocks of the model, "
                "or in another order; a strategy that divides the weights gathers a block on all ranks at once, and has mixed them up",
                remedy="let every rank take the same branch, whatever its random numbers and samples; or set strategy.name=ddp and "
                "communication.unused_parameters=true",
            )

    def _bad_step(self, step: int, result: StepResult) -> None:
        """Stop the run or skip the step, whose gradient is not finite."""
        scales_gradients = self._runner.precision.scales_gradients
        if scales_gradients and not math.isnan(result.loss_sum):
            return  # an overflow: the gradient scaler has lowered its scale
        if self._settings.nonfinite == "stop":
            if (
                not scales_gradients
            ):  # with a scaler, peers may take this for an overflow and continue: no collective here
                self._settle()
            losses = f", loss sum {result.loss_sum:.6g} on this rank" if result.samples else ""
            raise NonFiniteLossError(
                f"step {step}: the gradient is not finite (norm {result.gradient_norm}{losses}); loop.nonfinite=stop ends the run before "
                "the weights change",
                remedy="lower optimizer.learning_rate, inspect this step's samples (loop.log_sample_ids=true), or set "
                "loop.nonfinite=skip; the newest checkpoint is from before this step",
            )
        for bad_step in self.hooks.bad_step:
            bad_step(self, step, result)


def planned_steps(settings: LoopSettings, plan: BatchPlan) -> int:
    """Optimizer steps of a run: those of all its epochs, at most `loop.max_steps`."""
    steps = settings.epochs * plan.steps_per_epoch
    return min(steps, settings.max_steps or steps)

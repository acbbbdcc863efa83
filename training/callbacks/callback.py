"""The hooks of the training loop.

| hook | when | window settled |
|---|---|---|
| `on_run_start` | state is restored, before the first step | yes |
| `on_step_start` | before a step's first forward pass; learning rate and random generators are not set yet | |
| `on_bad_step` | a step's gradient was not finite and the step was skipped | |
| `on_step_end` | after every step, a skipped one too; `progress` counts it | |
| `on_window` | the ranks have summed the steps of a window | yes |
| `on_asked` | the ranks have summed what they ask of each other, and it is not 0 | yes |
| `on_due` | after a step within an epoch for which `is_due` was true, unless the ranks agreed to stop | yes |
| `on_epoch_end` | after an epoch's last step | yes |
| `stops_before_epoch` | before every epoch but the first one that this process trains | yes |
| `on_evaluation` | a split was evaluated; on rank 0 only, and some time after the step, if `loop.validation` is `async` | yes |
| `on_checkpoint` | a checkpoint is committed; rank 0 only, some time after it was taken | |
| `on_train_end` | all steps are done, or the ranks agreed to stop | yes |
| `on_run_end` | after every `on_train_end` | yes |
| `on_close` | the run is over, after an error too; in reverse order | |

"Window settled" means that every step done so far has been reported by `on_window`. All ranks reach the same points in the same order,
so a hook may communicate. At each point the callbacks are called in the order in which `training.rank.callbacks` lists them:
`LastStep`, `StepDeadline`, `EventLog`, `Usage`, `Profiling`, `AttentionReport`, `SampleLedger`, `Averaging`, callbacks of the caller,
`Evaluation`, `RemoteCheckpoints`, `Checkpointing`, `GateKeeper`.
A callback that is `Stateful` (`training.checkpoint.stateful`) is saved and restored under its `name`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from training.checkpoint.manifest import TrainProgress
from training.checkpoint.writer import CommittedCheckpoint
from training.data.types import Batch
from training.evaluate import EvaluationResult
from training.step import StepResult
from training.step_reducer import StepSums

if TYPE_CHECKING:
    from training.loop import Loop, StepRecord


class Callback:
    """Base class: every hook does nothing. Only the hooks that a class overrides are called.

    Attributes:
        name: stable name of its state in checkpoints; required of a callback with state.
    """

    name: ClassVar[str] = ""

    def on_run_start(self, loop: Loop) -> None:
        """State is restored; `loop.progress` says where the run starts."""

    def on_step_start(self, loop: Loop, micro_batches: list[Batch]) -> None:
        """A step starts with these micro-batches of this rank; `loop.progress` does not count it yet."""

    def on_bad_step(self, loop: Loop, step: int, result: StepResult) -> None:
        """Step `step` was skipped because its gradient was not finite."""

    def on_step_end(self, loop: Loop, micro_batches: list[Batch], result: StepResult) -> None:
        """A step is done; this rank's micro-batches and result."""

    def on_window(self, loop: Loop, steps: Sequence[StepRecord], sums: Sequence[StepSums]) -> None:
        """A window was reduced: this rank's records of the steps, and their sums over the ranks."""

    def asks(self, loop: Loop) -> int:
        """What this rank asks of all ranks, asked at the end of every window; 0 is nothing. The ranks' numbers are summed."""
        del loop
        return 0

    def on_asked(self, loop: Loop, number: int) -> None:
        """A rank asked: `number` is the sum over the ranks. All ranks are between the same two steps."""

    def is_due(self, loop: Loop) -> bool:
        """Whether to settle the window after this step and call `on_due`. Must be the same on every rank."""
        del loop
        return False

    def on_due(self, loop: Loop) -> None:
        """Act between two steps of an epoch."""

    def on_epoch_end(self, loop: Loop) -> None:
        """The epoch's last step is done; `loop.progress.epoch` is still that epoch."""

    def stops_before_epoch(self, loop: Loop) -> bool:
        """Whether the run stops instead of training `loop.progress.epoch`. Must be the same on every rank."""
        del loop
        return False

    def on_evaluation(self, loop: Loop, split: str, result: EvaluationResult, at: TrainProgress) -> None:
        """A split (`validation` or `test`) was evaluated, with the weights of `at`."""

    def on_checkpoint(self, loop: Loop, checkpoint: CommittedCheckpoint) -> None:
        """A checkpoint is on storage."""

    def on_train_end(self, loop: Loop) -> None:
        """After the last step; `loop.is_done` tells a finished run from a stopped one."""

    def on_run_end(self, loop: Loop) -> None:
        """The final state is committed."""

    def on_close(self, loop: Loop) -> None:
        """Release what the callback holds."""


class Hooks:
    """The overridden hooks of a list of callbacks, collected once: an unused hook costs an empty loop."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        def overriding(hook: str) -> list[Callback]:
            return [c for c in callbacks if getattr(type(c), hook) is not getattr(Callback, hook)]

        self.run_start = [c.on_run_start for c in overriding("on_run_start")]
        self.step_start = [c.on_step_start for c in overriding("on_step_start")]
        self.bad_step = [c.on_bad_step for c in overriding("on_bad_step")]
        self.step_end = [c.on_step_end for c in overriding("on_step_end")]
        self.window = [c.on_window for c in overriding("on_window")]
        self.asked = [(c.asks, c.on_asked) for c in overriding("asks")]
        self.due = [(c.is_due, c.on_due) for c in overriding("is_due")]
        self.epoch_end = [c.on_epoch_end for c in overriding("on_epoch_end")]
        self.stops_before_epoch = [c.stops_before_epoch for c in overriding("stops_before_epoch")]
        self.evaluation = [c.on_evaluation for c in overriding("on_evaluation")]
        self.checkpoint = [c.on_checkpoint for c in overriding("on_checkpoint")]
        self.train_end = [c.on_train_end for c in overriding("on_train_end")]
        self.run_end = [c.on_run_end for c in overriding("on_run_end")]
        self.close = [c.on_close for c in overriding("on_close")]

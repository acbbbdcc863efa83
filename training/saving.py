"""Where the loop's saves go: rank 0's asynchronous checkpointer; the other ranks have the same state and save nothing."""

from __future__ import annotations

import torch
from torch import nn

from observability.runlog import CheckpointCommitted, Emit, Notice
from training.checkpoint.manifest import Identity
from training.checkpoint.retention import Retention
from training.checkpoint.store import CheckpointStore
from training.checkpoint.writer import AsyncCheckpointer
from training.config.schema import CheckpointSettings
from training.loop import Loop
from training.precision import Precision


class Saver:
    """Saves the state of a run from rank 0 and reports what was committed.

    A checkpoint that could not be written ends the run: going on would risk more work than the person agreed to.
    """

    def __init__(
        self,
        store: CheckpointStore,
        *,
        identity: Identity,
        settings: CheckpointSettings,
        start_step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        precision: Precision,
        emit: Emit,
    ) -> None:
        self._writer = AsyncCheckpointer(
            store,
            identity=identity,
            retention=Retention.of(settings),
            start_step=start_step,
        )
        self._model = model
        self._optimizer = optimizer
        self._precision = precision
        self._emit = emit

    def save(self, loop: Loop, metric: float | None, *, final: bool = False) -> float:
        """Have the loop's state written; the seconds it was kept. With `final`, return when it is committed.

        Raises:
            CheckpointError: this checkpoint or an earlier one could not be written.
        """
        stall = self._writer.save(
            loop.progress,
            model=self._model,
            optimizer=self._optimizer,
            precision_state=self._precision.state(),
            extra={"best_metrics": loop.best_metrics},
            metric=metric,
            final=final,
        )
        self.report()
        return stall

    def reserve(self) -> None:
        """Set host memory aside, once the optimizer has its state; the first save would pay for it otherwise."""
        self._writer.reserve(self._model, self._optimizer)

    def report(self) -> None:
        """Emit the checkpoints committed since the last call.

        Raises:
            CheckpointError: one could not be written.
        """
        for done in self._writer.poll():
            self._emit(
                CheckpointCommitted(
                    step=done.step,
                    path=str(done.path),
                    bytes=done.bytes,
                    stall_seconds=done.stall_seconds,
                    write_seconds=done.write_seconds,
                )
            )
            for warning in done.warnings:
                self._emit(Notice(level="warning", message=warning))
            if done.superseded:
                steps = ", ".join(map(str, done.superseded))
                self._emit(
                    Notice(
                        level="warning",
                        message=f"storage is slower than checkpoint.every_steps: checkpoints of steps {steps} gave way "
                        f"to that of step {done.step}",
                    )
                )

    def close(self) -> None:
        """Wait for what is being written and report it."""
        self._writer.close()
        self.report()

"""Profiles a window of steps, by setting or on request. Without one, a step pays for two comparisons."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from observability.profiling.window import ProfileFolder, RankSteps, StepTimes, Window
from observability.quantities import counted
from observability.runlog import Emit, Notice
from training.callbacks.callback import Callback
from training.config.schema import ProfileSettings
from training.data.types import Batch
from training.launch.task import RankPlace
from training.loop import Loop, StepRecord
from training.profiling.inbox import Asked, RequestInbox
from training.profiling.request import numbered
from training.step import StepResult
from training.step_reducer import StepSums

if TYPE_CHECKING:
    import torch

    from training.profiling.recorder import Recorder


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """A window to record.

    Attributes:
        memory: also record allocations.
        asked: the request that it answers; None on ranks other than 0, and of the settings' window.
    """

    window: Window
    memory: bool
    asked: Asked | None = None


@dataclass(kw_only=True)
class _Current:
    """The window that is being recorded.

    Attributes:
        is_recording: the profiler runs.
        started: when each of its steps had its data, Unix time by step.
        times: of the steps that have been reported.
        peak_bytes: None until the profiler has stopped.
    """

    plan: _Plan
    folder: ProfileFolder
    recorder: Recorder
    is_recording: bool = False
    started: dict[int, float] = field(default_factory=dict)
    times: list[StepTimes] = field(default_factory=list)
    peak_bytes: int | None = None

    @property
    def window(self) -> Window:
        """The planned one."""
        return self.plan.window

    @property
    def is_complete(self) -> bool:
        """Whether the profiler has stopped and the last step is reported."""
        return self.peak_bytes is not None and bool(self.times) and self.times[-1].step >= self.window.last


class Profiling(Callback):
    """Records the steps of a window on every rank. A profile that cannot be written does not fail the run.

    The profiler is prepared in the step before the window and stopped when the step after it starts, so neither is in a profiled step.
    """

    def __init__(
        self, settings: ProfileSettings, run_directory: Path, *, emit: Emit, place: RankPlace, device: torch.device
    ) -> None:
        self._settings = settings
        self._run_directory = run_directory
        self._emit = emit
        self._place = place
        self._device = device
        self._inbox = RequestInbox(run_directory, emit=emit) if place.rank == 0 else None
        self._planned: _Plan | None = None
        self._current: _Current | None = None

    @property
    def is_active(self) -> bool:
        """Whether the profiler of this process is prepared or records; there is only one."""
        return self._current is not None and self._current.peak_bytes is None

    def on_run_start(self, loop: Loop) -> None:
        """Plan the window of the settings, unless the run has resumed beyond it."""
        first = self._settings.start_step
        if first is None or loop.progress.step + 2 > first:
            return
        window = self._window(loop, first, self._settings.steps)
        if window is None:
            self._warn(f"profile.start_step={first} is beyond the last step, {loop.total_steps}: nothing is profiled")
            return
        self._planned = _Plan(window=window, memory=self._settings.memory)

    def asks(self, loop: Loop) -> int:
        """The number of a request, on rank 0."""
        del loop
        request = None if self._inbox is None else self._inbox.waiting()
        return 0 if request is None else request.number

    def on_asked(self, loop: Loop, number: int) -> None:
        """Plan a window as soon as possible, or refuse."""
        asked = None if self._inbox is None else self._inbox.take()
        if self._planned is not None:
            self._refuse(asked, "a profile is already planned or under way")
            return
        steps, memory = numbered(number)
        window = self._window(loop, loop.progress.step + 2, steps)
        if window is None:
            self._refuse(asked, "the run has no steps left to profile")
            return
        self._planned = _Plan(window=window, memory=memory or self._settings.memory, asked=asked)
        if self._inbox is not None and asked is not None:
            self._accept(self._inbox, asked, window)

    def on_step_start(self, loop: Loop, micro_batches: list[Batch]) -> None:
        """Prepare, note when a step starts, or stop."""
        if self._planned is None:
            return
        step = loop.progress.step + 1
        if step == self._planned.window.first - 1:
            self._prepare(self._planned)
        elif self._current is not None and step <= self._planned.window.last:
            self._current.started[step] = time.time()
        elif self._current is not None:
            self._stop(self._current)

    def on_step_end(self, loop: Loop, micro_batches: list[Batch], result: StepResult) -> None:
        """Record from here on, if the next step is the first of the window."""
        del micro_batches, result
        current = self._current
        if current is not None and loop.progress.step == current.window.first - 1:
            current.recorder.start()
            current.is_recording = True

    def on_window(self, loop: Loop, steps: Sequence[StepRecord], sums: Sequence[StepSums]) -> None:
        """Keep the times of this rank's steps."""
        del loop, sums
        current = self._current
        if current is None:
            return
        for record in steps:
            started = current.started.get(record.step)
            if started is not None:
                current.times.append(_times(record, started))
        if current.is_complete:
            self._write(current)

    def on_train_end(self, loop: Loop) -> None:
        """Stop at the last step of the run, or where it was asked to stop."""
        del loop
        current = self._current
        if current is not None and current.is_recording:
            self._stop(current)
            if not current.is_complete and current.times:
                self._write(current)

    def on_close(self, loop: Loop) -> None:
        """Stop the profiler of this process after an error: it may train another run."""
        del loop
        if self._current is not None and self._current.is_recording:
            self._current.recorder.stop()

    def _window(self, loop: Loop, first: int, steps: int) -> Window | None:
        return Window.planned(first, steps, total_steps=loop.total_steps, world=self._place.world)

    def _accept(self, inbox: RequestInbox, asked: Asked, window: Window) -> None:
        # Before any rank can write its part: that takes a step, whose gradients wait for this rank.
        with suppress(OSError):  # `_prepare` says what is wrong with the folder
            ProfileFolder.of_step(self._run_directory, window.first).discard()
        inbox.accept(asked, step=window.first, text=f"{window.title} of {counted(window.world, 'rank')}")

    def _refuse(self, asked: Asked | None, reason: str) -> None:
        """Answer a request, on rank 0; without one, warn."""
        if self._inbox is not None and asked is not None:
            self._inbox.refuse(asked, reason)
        else:
            self._emit(Notice(level="warning", message=reason))

    def _prepare(self, plan: _Plan) -> None:
        # Imported here, because it costs a run without a profile tens of milliseconds.
        from training.profiling.recorder import Recorder  # noqa: PLC0415

        folder = ProfileFolder.of_step(self._run_directory, plan.window.first)
        if plan.memory and self._device.type != "cuda":
            self._say("no memory snapshot is written: it is of a GPU, and the ranks run on CPUs")
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            folder.steps_file(self._place.rank).unlink(missing_ok=True)  # of an attempt that failed since
            if self._place.rank == 0:
                folder.write_window(plan.window)
        except OSError as error:
            self._planned = None
            self._refuse(plan.asked, f"{folder.path} cannot be written: {error.strerror}; nothing is profiled")
            return
        recorder = Recorder(self._device, memory=plan.memory)
        recorder.prepare()
        self._current = _Current(plan=plan, folder=folder, recorder=recorder)

    def _stop(self, current: _Current) -> None:
        """Stop the profiler, and write the profile if the window's last step has been reported already."""
        if current.is_recording:
            current.peak_bytes = current.recorder.stop()
            current.is_recording = False
        if current.is_complete:
            self._write(current)

    def _write(self, current: _Current) -> None:
        self._planned, self._current = None, None
        rank = self._place.rank
        try:
            current.recorder.write(current.folder.trace(rank), current.folder.memory(rank))
            current.folder.write_rank_steps(
                RankSteps(
                    rank=rank,
                    host=socket.gethostname(),
                    device=self._device.type,
                    steps=current.times,
                    peak_bytes=current.peak_bytes or 0,
                )
            )
        except OSError as error:
            self._refuse(
                current.plan.asked, f"the profile of {current.window.title} could not be written: {error.strerror}"
            )
            return
        self._say(f"profiled {current.window.title}: {current.folder.path}")

    def _say(self, message: str) -> None:
        self._emit(Notice(level="info", message=message))

    def _warn(self, message: str) -> None:
        self._emit(Notice(level="warning", message=message))


def _times(record: StepRecord, started: float) -> StepTimes:
    return StepTimes(
        step=record.step,
        began=record.time - record.seconds,
        started=started,
        ended=record.time,
        data_seconds=record.data_seconds,
        checkpoint_seconds=record.checkpoint_seconds,
    )

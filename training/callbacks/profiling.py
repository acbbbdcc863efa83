"""Profiles a window of steps, by setting or on request. Without one, a step pays for two comparisons."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from observability.profiling.window import ProfileFolder, RankSteps, StepTimes, Window
from observability.runlog import Emit, Notice
from training.callbacks.callback import Callback
from training.config.schema import ProfileSettings
from training.data.types import Batch
from training.launch.task import RankPlace
from training.loop import Loop, StepRecord
from training.profiling.request import ProfileRequest
from training.step import StepResult
from training.step_reducer import StepSums

if TYPE_CHECKING:
    import torch

    from training.profiling.recorder import Recorder


@dataclass(kw_only=True)
class _Current:
    """The window that is being recorded.

    Attributes:
        is_recording: the profiler runs.
        started: when each of its steps had its data, Unix time by step.
        times: of the steps that have been reported.
        peak_bytes: None until the profiler has stopped.
    """

    window: Window
    folder: ProfileFolder
    recorder: Recorder
    is_recording: bool = False
    started: dict[int, float] = field(default_factory=dict)
    times: list[StepTimes] = field(default_factory=list)
    peak_bytes: int | None = None

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
        self._request = ProfileRequest(run_directory)
        self._planned: Window | None = None
        self._current: _Current | None = None

    def on_run_start(self, loop: Loop) -> None:
        """Plan the window of the settings, unless the run has resumed beyond it."""
        first = self._settings.start_step
        if first is None or loop.progress.step + 2 > first:
            return
        self._plan(loop, first, self._settings.steps)
        if self._planned is None:
            self._warn(f"profile.start_step={first} is beyond the last step, {loop.total_steps}: nothing is profiled")

    def asks(self, loop: Loop) -> int:
        """The steps of a request, on rank 0."""
        del loop
        return self._request.steps() if self._place.rank == 0 else 0

    def on_asked(self, loop: Loop, number: int) -> None:
        """Plan a window as soon as possible, or refuse."""
        if self._place.rank == 0:
            self._request.withdraw()
        if self._planned is not None:
            self._warn("a profile is already planned or under way: the request is refused")
            return
        self._plan(loop, loop.progress.step + 2, number)
        if self._planned is None:
            self._warn("the run has no steps left to profile: the request is refused")

    def on_step_start(self, loop: Loop) -> None:
        """Prepare, note when a step starts, or stop."""
        if self._planned is None:
            return
        step = loop.progress.step + 1
        if step == self._planned.first - 1:
            self._prepare(self._planned)
        elif self._current is not None and step <= self._planned.last:
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

    def _plan(self, loop: Loop, first: int, steps: int) -> None:
        self._planned = Window.planned(first, steps, total_steps=loop.total_steps, world=self._place.world)

    def _prepare(self, window: Window) -> None:
        # Imported here, because it costs a run without a profile tens of milliseconds.
        from training.profiling.recorder import Recorder  # noqa: PLC0415

        folder = ProfileFolder.of_step(self._run_directory, window.first)
        if self._settings.memory and self._device.type != "cuda":
            self._say("profile.memory=true has no effect on a CPU: a memory snapshot is of a GPU")
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            folder.steps_file(self._place.rank).unlink(missing_ok=True)  # of an attempt that failed since
            if self._place.rank == 0:
                folder.write_window(window)
        except OSError as error:
            self._planned = None
            self._warn(f"{folder.path} cannot be written: {error.strerror}; nothing is profiled")
            return
        recorder = Recorder(self._device, memory=self._settings.memory)
        recorder.prepare()
        self._current = _Current(window=window, folder=folder, recorder=recorder)

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
            self._warn(f"the profile of {current.window.title} could not be written: {error.strerror}")
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

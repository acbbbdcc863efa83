"""Ends a rank whose step takes too long: its stacks are written, and its failure says in which step and where it was.

A collective has a timeout of its own (`scale.collective_timeout`), which ends the ranks that wait. This also finds a single rank that
hangs, ranks that all wait for the same storage, and, with a deadline below that timeout, the rank that the others wait for.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from training import evidence, failures
from training.callbacks.callback import Callback
from training.data.types import Batch
from training.failures import STEP_DEADLINE, Failure
from training.flight_recorder import FlightRecorder
from training.launch.task import RankPlace, RankTask
from training.loop import Loop
from training.recovery.causes import Cause
from training.step import StepResult
from training.user_code import is_user_code

logger = logging.getLogger(__name__)

_POLLS: Final = 20
"""Looks at the clock within the deadline."""

_PEERS_SECONDS: Final = 1.0
"""Between the record of a rank and its end. Ranks that wait for each other exceed the deadline together, and the end of one ends all:
without their records, the one that waits could be taken for the one that hangs."""


class _Running(NamedTuple):
    """The step that is running, and the time at which it began."""

    step: int
    began: float


class StepDeadline(Callback):
    """Watches the steps of this rank from a thread. It costs a step nothing but the time of a clock.

    A step lasts from the end of the one before it, with the wait for its batch; the first one of an attempt, which may compile, has no
    deadline, nor have evaluations.
    """

    def __init__(
        self, run_directory: Path, *, attempt: int, rank: int, seconds: float, dump_collectives: Callable[[], None]
    ) -> None:
        """Args: `dump_collectives` writes down in which collective this rank is."""
        self._run_directory = run_directory
        self._attempt = attempt
        self._rank = rank
        self._seconds = seconds
        self._poll = seconds / _POLLS
        self._dump_collectives = dump_collectives
        self._stacks = evidence.stack_file(run_directory, attempt=attempt, rank=rank).open("a", encoding="utf-8")
        self._running: _Running | None = None
        self._is_over = threading.Event()
        self._main = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="step-deadline", daemon=True)

    @classmethod
    def of(cls, task: RankTask, place: RankPlace, recorder: FlightRecorder) -> list[StepDeadline]:
        """The callback of a rank; none without a deadline."""
        seconds = task.settings.recovery.step_deadline
        if seconds is None:
            return []
        return [
            cls(
                task.run_directory,
                attempt=task.attempt,
                rank=place.rank,
                seconds=seconds,
                dump_collectives=recorder.dump if place.world > 1 else lambda: None,
            )
        ]

    def on_run_start(self, loop: Loop) -> None:
        """Start the thread."""
        self._thread.start()

    def on_step_end(self, loop: Loop, micro_batches: list[Batch], result: StepResult) -> None:
        """The next step begins."""
        if self._running is None:
            self._arm()  # not later, in the thread: the next steps may be over, and the interpreter's lock be held, before it looks
        self._running = _Running(loop.progress.step + 1, time.monotonic())

    def on_epoch_end(self, loop: Loop) -> None:
        """An evaluation may follow."""
        self._rest()

    def on_train_end(self, loop: Loop) -> None:
        """No step follows."""
        self._rest()

    def on_close(self, loop: Loop) -> None:
        """End the thread."""
        self._rest()
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        faulthandler.cancel_dump_traceback_later()
        self._stacks.close()

    def _rest(self) -> None:
        self._running = None
        faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        while not self._is_over.wait(self._poll):
            running = self._running
            if running is None:
                continue
            self._arm()
            if self._running is None:
                faulthandler.cancel_dump_traceback_later()
            elif time.monotonic() - running.began > self._seconds:
                self._end(running.step)

    def _arm(self) -> None:
        """Native code that holds the interpreter's lock also stops our thread: then faulthandler's ends the process."""
        faulthandler.dump_traceback_later(self._seconds + self._poll, exit=True, file=self._stacks)

    def _end(self, step: int) -> None:
        faulthandler.cancel_dump_traceback_later()
        place = self._place()
        message = f"step {step} has taken more than {self._seconds:g} s (recovery.step_deadline)"
        self._record(message + (f", at {place}" if place else ""), step=step, place=place)
        logger.error("%s at %s", message, place)
        time.sleep(_PEERS_SECONDS)
        os._exit(1)

    def _record(self, message: str, *, step: int, place: str) -> None:
        """Write down what is known; the rank ends, even if the disk is full."""
        try:
            faulthandler.dump_traceback(self._stacks, all_threads=True)
            self._dump_collectives()
            failure = Failure(
                rank=self._rank,
                time=time.time(),
                kind=STEP_DEADLINE,
                message=message,
                remedy=failures.remedy_of_deadline(),
                cause=Cause.HANG,
                step=step,
                place=place,
            )
            failures.record(self._run_directory, failure, attempt=self._attempt)
        except OSError:
            logger.exception("the stacks of this rank could not be written")

    def _place(self) -> str:
        """Where the training thread is: `file:line in function` of the innermost frame of user code, or else of all."""
        frame = sys._current_frames().get(self._main)  # noqa: SLF001 - documented, for debuggers
        if frame is None:
            return ""
        frames = traceback.extract_stack(frame)[::-1]
        own = next((one for one in frames if is_user_code(one.filename)), frames[0])
        return f"{own.filename}:{own.lineno} in {own.name}"

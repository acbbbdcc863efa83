"""Ends a rank in which something takes too long: its stacks are written, and its failure says what it was and where.

A collective has a timeout of its own (`scale.collective_timeout`), which ends the ranks that wait. This also finds a single rank that
hangs, ranks that all wait for the same storage, and, with a deadline below that timeout, the rank that the others wait for.
"""

from __future__ import annotations

import faulthandler
import logging
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from training import evidence, failures
from training.config.schema import TrainingSettings
from training.data.forking import loader_processes
from training.failures import Failure
from training.recovery.causes import Cause
from training.user_code import is_user_code

logger = logging.getLogger(__name__)

_POLLS: Final = 20
"""Looks at the clock within the shortest deadline."""

_LONGEST_POLL: Final = 1.0
"""Seconds, also for a request to stop."""

_PEERS_SECONDS: Final = 1.0
"""Between the record of a rank and its end. Ranks that wait for each other exceed the deadline together, and the end of one ends all:
without their records, the one that waits could be taken for the one that hangs."""

_STACK_SECONDS: Final = 0.1
"""Until a process of the data loader has written its stack."""

_STEP, _BATCH = "step", "batch"

STOP_PATIENCE: Final = 15.0
"""Seconds that a run which is asked to stop waits for a batch: the step that would save it begins with one."""


class _Running(NamedTuple):
    """What is under way, since when, and how long it may take.

    Attributes:
        what: the message begins with it.
        began: on the monotonic clock.
        seconds: how long it may take; infinity for no deadline.
        setting: that has the limit.
        kind: of the failure.
        step: under way; None if that is not known.
        is_batch: it is a wait for a batch, which also ends when the run is asked to stop.
    """

    what: str
    began: float
    seconds: float
    setting: str
    kind: str
    step: int | None = None
    is_batch: bool = False


class Deadlines:
    """Watches this rank from a thread. It costs a step nothing but the time of a clock."""

    def __init__(
        self,
        settings: TrainingSettings,
        run_directory: Path,
        *,
        attempt: int,
        rank: int,
        dump_collectives: Callable[[], None],
    ) -> None:
        """Args: `dump_collectives` writes down in which collective this rank is."""
        limits = settings.recovery
        self._first_step, self._step, self._batch = (
            seconds or math.inf for seconds in (limits.first_step_deadline, limits.step_deadline, limits.batch_deadline)
        )
        self._run_directory = run_directory
        self._attempt = attempt
        self._rank = rank
        self._poll = min(_LONGEST_POLL, min(self._first_step, self._step, self._batch) / _POLLS)
        self._dump_collectives = dump_collectives
        self._running: dict[str, _Running] = {}
        self._armed = math.inf
        self._stop_since: float | None = None
        (run_directory / evidence.FOLDER).mkdir(exist_ok=True)
        self._stacks = evidence.stack_file(run_directory, attempt=attempt, rank=rank).open("a", encoding="utf-8")
        self._is_over = threading.Event()
        self._main = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="deadlines", daemon=True)

    def start(self) -> None:
        """Start the thread. Processes of the data loader that are forked from now on write their stacks on SIGUSR1."""
        faulthandler.register(signal.SIGUSR1, self._stacks, all_threads=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._running.clear()
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        faulthandler.cancel_dump_traceback_later()
        faulthandler.unregister(signal.SIGUSR1)
        self._stacks.close()

    def step_begins(self, step: int, *, is_first: bool = False) -> None:
        """A step begins, or the wait for its batch; the first one of an attempt may compile."""
        seconds, name = (self._first_step, "first_step") if is_first else (self._step, "step")
        setting, kind = f"recovery.{name}_deadline", failures.STEP_DEADLINE
        began = time.monotonic()
        self._running[_STEP] = _Running(f"step {step} has taken", began, seconds, setting, kind, step=step)
        if began + seconds < self._armed:
            self._arm()  # not later, in the thread: the next steps may be over, and the interpreter's lock be held, before it looks

    def no_step(self) -> None:
        """No step is under way: an evaluation may follow."""
        self._running.pop(_STEP, None)
        self._arm()

    def __enter__(self) -> None:
        """A batch is waited for."""
        kind, setting = failures.BATCH_DEADLINE, "recovery.batch_deadline"
        self._running[_BATCH] = _Running(
            "waited for a batch", time.monotonic(), self._batch, setting, kind, is_batch=True
        )

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        """The batch is there, or cannot be read."""
        self._running.pop(_BATCH, None)

    def _watch(self) -> None:
        while not self._is_over.wait(self._poll):
            now = time.monotonic()
            for running in list(self._running.values()):
                waited = now - running.began
                if waited > running.seconds:
                    self._end(running, f"{running.what} more than {running.seconds:g} s ({running.setting})")
                elif running.is_batch and waited > STOP_PATIENCE and self._has_to_stop(now):
                    stopped = running._replace(kind=failures.STOPPED_WAITING)
                    self._end(stopped, f"{running.what} for {waited:.0f} s, and the run is asked to stop")
            self._arm()

    def _has_to_stop(self, now: float) -> bool:
        """Whether the run has been asked to stop for long enough."""
        if not (self._run_directory / "stop").exists():
            self._stop_since = None
            return False
        self._stop_since = now if self._stop_since is None else self._stop_since
        return now - self._stop_since > STOP_PATIENCE

    def _arm(self) -> None:
        """Native code that holds the interpreter's lock also stops our thread: then faulthandler's ends the process, if it is in a step."""
        step = self._running.get(_STEP)
        self._armed = math.inf if step is None else step.began + step.seconds
        if self._armed == math.inf:
            faulthandler.cancel_dump_traceback_later()
        else:
            left = max(self._armed - time.monotonic(), 0)
            faulthandler.dump_traceback_later(left + 2 * self._poll, exit=True, file=self._stacks)
        if step is not None and _STEP not in self._running:  # it ended meanwhile, in the other thread
            faulthandler.cancel_dump_traceback_later()

    def _end(self, running: _Running, message: str) -> None:
        faulthandler.cancel_dump_traceback_later()
        place = (self._place_in_loader() if running.is_batch else "") or self._place()
        self._record(running, message + (f", at {place}" if place else ""), place=place)
        logger.error("%s at %s", message, place)
        time.sleep(_PEERS_SECONDS)
        os._exit(1)

    def _record(self, running: _Running, message: str, *, place: str) -> None:
        """Write down what is known; the rank ends, even if the disk is full."""
        try:
            faulthandler.dump_traceback(self._stacks, all_threads=True)
            self._dump_collectives()
            failure = Failure(
                rank=self._rank,
                time=time.time(),
                kind=running.kind,
                message=message,
                remedy=failures.remedy_of_deadline(running.setting),
                cause=Cause.HANG,
                step=running.step,
                place=place,
            )
            failures.record(self._run_directory, failure, attempt=self._attempt)
        except OSError:
            logger.exception("the stacks of this rank could not be written")

    def _place_in_loader(self) -> str:
        """Where the first process of the data loader is that answers, after all have written their stacks; empty if none does."""
        place = ""
        for process in loader_processes():
            with suppress(OSError):
                self._stacks.write(f"process {process} of the data loader\n")
                self._stacks.flush()
                begins = self._stacks.tell()
                os.kill(process, signal.SIGUSR1)
                time.sleep(_STACK_SECONDS)
                with Path(self._stacks.name).open(encoding="utf-8") as written:
                    written.seek(begins)
                    place = place or evidence.innermost(written.read().rpartition("\nCurrent thread ")[2])
        return place

    def _place(self) -> str:
        """Where the training thread is: `file:line in function` of the innermost frame of user code, or else of all."""
        frame = sys._current_frames().get(self._main)  # noqa: SLF001 - documented, for debuggers
        if frame is None:
            return ""
        frames = traceback.extract_stack(frame)[::-1]
        own = next((one for one in frames if is_user_code(one.filename)), frames[0])
        return f"{own.filename}:{own.lineno} in {own.name}"

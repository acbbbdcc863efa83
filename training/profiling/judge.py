"""Reads the profiles that were asked for from afar, in the driver, while the run goes on, and logs the verdicts."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from observability.event_log import NOW
from observability.profiling.analysis import analyse, run_figures
from observability.profiling.text import describe
from observability.profiling.window import ProfileFolder
from observability.runlog import ProfileAnswered, RunLogWriter
from training.profiling.answers import Answers

_POLL_SECONDS = 1.0

_LATE_RANK_SECONDS = 300.0
"""Time that the other ranks have for their traces after the first: they write them at the same time, of about the same size."""


class Judge:
    """Answers the requests to a run whose ranks record, with a thread for each."""

    def __init__(self, run_directory: Path) -> None:
        self._run_directory = run_directory
        self._is_over = threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self._refused: set[str] = set()

    def handle(self, event: ProfileAnswered) -> None:
        """Wait for the ranks' parts of a profile that is recorded; once for each request."""
        if event.state == "refused":
            self._refused.add(event.request)
        elif event.is_remote and event.state == "recording" and event.request not in self._threads:
            thread = threading.Thread(target=self._answer, args=(event,), name=f"profile {event.request}", daemon=True)
            self._threads[event.request] = thread
            thread.start()

    def finish(self) -> None:
        """Answer what is left, now that the ranks write no more."""
        self._is_over.set()
        for thread in self._threads.values():
            thread.join()

    def _answer(self, recording: ProfileAnswered) -> None:
        profile = ProfileFolder.of_step(self._run_directory, recording.step)
        self._await_ranks(profile, recording.request)
        if recording.request in self._refused:
            return
        state, text = self._verdict(profile)
        answer = replace(recording, time=NOW, state=state, text=text, folder=str(profile.path))
        Answers(self._run_directory).write(answer)
        # A writer of its own, because one serves one thread. A full disk ends the run, and its driver says so.
        with suppress(OSError), RunLogWriter(self._run_directory) as log:
            log.write(answer)

    def _await_ranks(self, profile: ProfileFolder, request: str) -> None:
        first: float | None = None
        while not profile.is_complete() and request not in self._refused and not self._is_over.wait(_POLL_SECONDS):
            if first is None and profile.has_a_rank():
                first = time.monotonic()
            if first is not None and time.monotonic() - first > _LATE_RANK_SECONDS:
                return

    def _verdict(self, profile: ProfileFolder) -> tuple[str, str]:
        """State and text of the answer; an error in a profile does not fail the run."""
        if not profile.has_a_rank():
            return "refused", "the run ended before the steps were profiled"
        try:
            return "done", describe(analyse(profile, run_figures(self._run_directory)), run=str(self._run_directory))
        except Exception as error:  # noqa: BLE001 - the run goes on
            return "refused", f"the profile could not be analysed: {type(error).__name__}: {error}"

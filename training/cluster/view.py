"""Shows a followed job: its states with their reasons, and its driver's output."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TextIO

from observability.screens import PlainScreen, Screen, TerminalScreen, Tone
from platform_charts.jobs.progress import read_progress_line
from training.cluster.state import JobState
from training.errors import ExitStatus

HEADLINES = {
    "queued": "queued",
    "starting": "starting the pods",
    "running": "running",
    "ending": "the driver has ended",
    "restarting": "retrying on a new cluster, from the newest checkpoint",
    "stopping": "saving its state and stopping",
}

_TONES: dict[int | None, Tone] = {ExitStatus.DONE: "good", ExitStatus.INTERRUPTED: "warning", None: "plain"}


class JobView:
    """Lines in a pipe, one live line or bar on a terminal. Each state and each reason is shown once.

    Attributes:
        stage: the stage shown last; empty before the first.
    """

    def __init__(self, stream: TextIO, *, is_terminal: bool, headlines: Mapping[str, str] = HEADLINES) -> None:
        """`headlines` are the words of each stage."""
        self._screen: Screen = TerminalScreen(stream) if is_terminal else PlainScreen(stream)
        self._draws_live = is_terminal
        self._headlines = headlines
        self.stage = ""
        self._detail = ""

    def state(self, state: JobState) -> None:
        """Show a state, if it differs from the last one."""
        detail = describe(state)
        if state.is_over:
            self.close()
            words = f"{state.stage}: {detail}" if detail else state.stage
            self._screen.line(words, tone=_TONES.get(state.status, "error"))
            return
        if state.stage != self.stage:
            self.stage, self._detail = state.stage, ""
            self._screen.begin(self._headlines[state.stage], at=time.time())
        if detail and detail != self._detail:
            self._detail = detail
            self._screen.line(f"  {detail}", tone="dim")

    def log(self, line: str) -> None:
        """Show a line that the driver printed; on a terminal progress moves the bar."""
        progress = read_progress_line(line) if self._draws_live else None
        if progress is not None:
            self._screen.advance(progress.done, progress.total, progress.figures)
        else:
            self._screen.line(line)

    def say(self, text: str, *, tone: Tone = "plain") -> None:
        """Show a line of this command."""
        self._screen.line(text, tone=tone)

    def tick(self) -> None:
        """Redraw what changes with time."""
        self._screen.refresh()

    def close(self) -> None:
        """Restore the terminal."""
        self._screen.finish(at=time.time())


def describe(state: JobState) -> str:
    """Queue position and reason of a state, in one line."""
    position = f"position {state.position}" if state.position is not None else ""
    return ": ".join(part for part in (position, state.reason) if part)

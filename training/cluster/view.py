"""Shows a job while it is followed: its states and the reasons for them, and what its driver prints."""

from __future__ import annotations

import re
import time
from typing import TextIO

from observability.screens import PlainScreen, Screen, TerminalScreen, Tone
from training.cluster.state import JobState
from training.errors import ExitStatus

_STEP = re.compile(r"step +(?P<step>\d+)/(?P<total>\d+)  (?P<text>.*)")
"""A step as the driver writes it where it has no terminal (`observability.screens.PlainScreen`)."""

_WORDS = {
    "queued": "in the queue",
    "starting": "starting the pods",
    "running": "the driver runs",
    "restarting": "beginning anew on a new cluster, from the newest checkpoint",
    "stopping": "saving and stopping",
}

_TONES: dict[ExitStatus | None, Tone] = {ExitStatus.DONE: "good", ExitStatus.INTERRUPTED: "warning", None: "plain"}


class JobView:
    """Lines for a pipe, one live line or bar on a terminal. Each state and each reason is shown once, when it is new."""

    def __init__(self, stream: TextIO, *, is_terminal: bool) -> None:
        self._screen: Screen = TerminalScreen(stream) if is_terminal else PlainScreen(stream)
        self._draws_live = is_terminal
        self._stage = ""
        self._detail = ""

    def state(self, state: JobState) -> None:
        """Show a state; nothing where it is the last one's."""
        detail = describe(state)
        if state.is_over:
            self.close()
            words = f"{state.stage}: {detail}" if detail else state.stage
            self._screen.line(words, tone=_TONES.get(state.status, "error"))
            return
        if state.stage != self._stage:
            self._stage, self._detail = state.stage, ""
            self._screen.begin(_WORDS[state.stage], at=time.time())
        if detail and detail != self._detail:
            self._detail = detail
            self._screen.line(f"  {detail}", tone="dim")

    def log(self, line: str) -> None:
        """Show a line that the driver printed; a step moves the bar where there is one."""
        step = _STEP.fullmatch(line) if self._draws_live else None
        if step is not None:
            self._screen.advance(int(step["step"]), int(step["total"]), step["text"])
        else:
            self._screen.line(line)

    def say(self, text: str, *, tone: Tone = "plain") -> None:
        """Show a line of our own."""
        self._screen.line(text, tone=tone)

    def tick(self) -> None:
        """Draw again what changes with time."""
        self._screen.refresh()

    def close(self) -> None:
        """Leave the terminal as it was found."""
        self._screen.finish(at=time.time())


def describe(state: JobState) -> str:
    """Place in the queue and reason of a state, in one line."""
    place = f"position {state.position}" if state.position is not None else ""
    return ": ".join(part for part in (place, state.reason) if part)

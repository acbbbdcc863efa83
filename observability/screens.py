"""Screens that show progress: plain lines in a pipe or file, one live line or bar on a terminal.

`TerminalScreen` writes its first lines without rich, which takes a while to import, and imports it to draw the bar.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, Protocol, TextIO

from observability.quantities import duration

if TYPE_CHECKING:
    from observability.step_bar import StepBar

Tone = Literal["plain", "dim", "good", "warning", "error"]

_REFRESH_SECONDS = 0.2
_CLEAR_LINE = "\r\x1b[2K"
_ANSI_CODES = {"plain": "", "dim": "\x1b[2m", "good": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m"}
RICH_STYLES = {"plain": "", "dim": "dim", "good": "green", "warning": "yellow", "error": "red"}
"""Styles of rich by tone."""


class Screen(Protocol):
    """The output of a progress view."""

    def line(self, text: str, *, tone: Tone = "plain") -> None:
        """Write a permanent line."""

    def begin(self, text: str, *, at: float) -> None:
        """Show an activity that begins at the Unix time `at` and ends the previous one."""

    def advance(self, done: int, total: int, text: str) -> None:
        """Show that `done` of `total` steps are complete, with their figures in `text`."""

    def finish(self, *, at: float) -> None:
        """End the current activity or the bar at the Unix time `at`."""

    def refresh(self) -> None:
        """Redraw what changes with time."""


class PlainScreen:
    """Writes lines only and flushes each one, so that the reader of a pipe sees progress."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._first: float | None = None

    def line(self, text: str, *, tone: Tone = "plain") -> None:
        """Write a line without colour."""
        del tone
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def begin(self, text: str, *, at: float) -> None:
        """Write the activity with the seconds since the first one began."""
        self._first = at if self._first is None else self._first
        self.line(f"[{at - self._first:6.1f} s] {text}")

    def advance(self, done: int, total: int, text: str) -> None:
        """Write the steps and their figures as a line."""
        self.line(f"step {done:>{len(str(total))}}/{total}  {text}")

    def finish(self, *, at: float) -> None:
        """Do nothing: no line is left open."""

    def refresh(self) -> None:
        """Do nothing: plain lines do not change."""


class TerminalScreen:
    """Shows one live line or bar at the bottom and permanent lines above it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._activity: tuple[str, float] | None = None
        self._bar: StepBar | None = None
        self._drawn = 0.0

    def line(self, text: str, *, tone: Tone = "plain") -> None:
        """Write a line above the live one."""
        if self._bar is not None:
            self._bar.print_line(text, style=RICH_STYLES[tone])
            return
        self._write(f"{_CLEAR_LINE if self._activity else ''}{_coloured(text, tone)}\n")
        self._draw_activity()

    def begin(self, text: str, *, at: float) -> None:
        """Show the activity as a live line with its duration so far."""
        self.finish(at=at)
        self._activity = (text, at)
        self._draw_activity()

    def advance(self, done: int, total: int, text: str) -> None:
        """Update the bar; `refresh` draws it."""
        if self._bar is None:
            self.finish(at=time.time())
            from observability.step_bar import StepBar  # noqa: PLC0415 - imports rich

            self._bar = StepBar(self._stream)
            self._bar.add_task("training", total=total, text=text)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, text=text)

    def finish(self, *, at: float) -> None:
        """Leave the live line or the bar on the screen as it is."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._activity is not None:
            text, since = self._activity
            self._activity = None
            self._write(f"{_CLEAR_LINE}{_coloured('✓', 'good')} {text}  {_coloured(duration(at - since), 'dim')}\n")

    def refresh(self) -> None:
        """Redraw the live line or the bar, at most a few times a second."""
        now = time.monotonic()
        if now - self._drawn < _REFRESH_SECONDS:
            return
        self._drawn = now
        if self._bar is not None:
            self._bar.refresh()
        else:
            self._draw_activity()

    def _draw_activity(self) -> None:
        if self._activity is not None:
            text, since = self._activity
            self._write(f"{_CLEAR_LINE}… {text}  {_coloured(f'{max(0.0, time.time() - since):.1f} s', 'dim')}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _coloured(text: str, tone: Tone) -> str:
    return f"{_ANSI_CODES[tone]}{text}\x1b[0m" if _ANSI_CODES[tone] else text

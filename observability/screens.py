"""Where a run's progress is shown: plain lines for a pipe or file, one live bar or line for a terminal.

A terminal's first lines are written without rich, which takes a while to import; it is loaded when the bar is first drawn.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, Protocol, TextIO

from observability.quantities import duration

if TYPE_CHECKING:
    from rich.progress import Progress

Tone = Literal["plain", "dim", "good", "warning", "error"]

_REFRESH_SECONDS = 0.2
_CLEAR_LINE = "\r\x1b[2K"
_ANSI = {"plain": "", "dim": "\x1b[2m", "good": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m"}
_RICH = {"plain": "", "dim": "dim", "good": "green", "warning": "yellow", "error": "red"}


class Screen(Protocol):
    """What the progress view draws on."""

    def line(self, text: str, *, tone: Tone = "plain") -> None:
        """Write a line that stays."""

    def begin(self, text: str, *, at: float) -> None:
        """Say what begins at the Unix time `at`; what was begun before has ended then."""

    def advance(self, done: int, total: int, text: str) -> None:
        """Show how far the steps are and what is measured of them."""

    def settle(self, *, at: float) -> None:
        """What was begun, or the steps, ended at the Unix time `at`."""

    def refresh(self) -> None:
        """Draw again what changes with time."""


class PlainScreen:
    """Lines only, each written at once, so that a pipe shows what is going on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._first: float | None = None

    def line(self, text: str, *, tone: Tone = "plain") -> None:
        """Write a line, without colour whatever its tone."""
        del tone
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def begin(self, text: str, *, at: float) -> None:
        """Write what begins, with the seconds since the first thing began."""
        self._first = at if self._first is None else self._first
        self.line(f"[{at - self._first:6.1f} s] {text}")

    def advance(self, done: int, total: int, text: str) -> None:
        """Write the steps as a line."""
        self.line(f"step {done:>{len(str(total))}}/{total}  {text}")

    def settle(self, *, at: float) -> None:
        """Nothing is open in plain lines."""

    def refresh(self) -> None:
        """Nothing in plain lines changes with time."""


class TerminalScreen:
    """One live line at the bottom, permanent lines above it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._begun: tuple[str, float] | None = None
        self._bar: Progress | None = None
        self._drawn = 0.0

    def line(self, text: str, *, tone: Tone = "plain") -> None:
        """Write a line above the live one."""
        if self._bar is not None:
            from rich.text import Text  # noqa: PLC0415

            self._bar.console.print(Text(text, style=_RICH[tone]))
            return
        self._write(f"{_CLEAR_LINE if self._begun else ''}{_coloured(text, tone)}\n")
        self._draw_begun()

    def begin(self, text: str, *, at: float) -> None:
        """Show a live line with the seconds it has taken so far."""
        self.settle(at=at)
        self._begun = (text, at)
        self._draw_begun()

    def advance(self, done: int, total: int, text: str) -> None:
        """Move the bar; drawing is left to `refresh`."""
        if self._bar is None:
            self.settle(at=time.time())
            self._bar = _make_bar(self._stream)
            self._bar.add_task("training", total=total, text=text)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, text=text)

    def settle(self, *, at: float) -> None:
        """Leave the live line or the bar standing as it is now."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._begun is not None:
            text, since = self._begun
            self._begun = None
            self._write(f"{_CLEAR_LINE}{_coloured('✓', 'good')} {text}  {_coloured(duration(at - since), 'dim')}\n")

    def refresh(self) -> None:
        """Draw the live line or the bar again, a few times a second at most."""
        now = time.monotonic()
        if now - self._drawn < _REFRESH_SECONDS:
            return
        self._drawn = now
        if self._bar is not None:
            self._bar.refresh()
        else:
            self._draw_begun()

    def _draw_begun(self) -> None:
        if self._begun is not None:
            text, since = self._begun
            self._write(f"{_CLEAR_LINE}… {text}  {_coloured(f'{max(0.0, time.time() - since):.1f} s', 'dim')}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _coloured(text: str, tone: Tone) -> str:
    return f"{_ANSI[tone]}{text}\x1b[0m" if _ANSI[tone] else text


def _make_bar(stream: TextIO) -> Progress:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415

    return Progress(
        BarColumn(bar_width=None),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),  # a narrow terminal shortens the bar, not the count
        TextColumn("{task.fields[text]}"),
        console=Console(file=stream, force_terminal=True, highlight=False),
        auto_refresh=False,
        expand=True,
    )

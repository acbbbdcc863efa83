"""The live table of a terminal; a module of its own because rich takes a while to import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from observability.screens import RICH_STYLES, Tone


class LiveTable:
    """Lines at the bottom of a terminal that are replaced as a whole, and permanent lines above them."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, force_terminal=True, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False)
        self._live.start()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of the terminal."""
        return self._console.width, self._console.height

    def show(self, lines: Sequence[tuple[str, Tone]]) -> None:
        """Replace the lines."""
        table = Text("\n", no_wrap=True, overflow="ellipsis").join(
            Text(text, style=RICH_STYLES[tone]) for text, tone in lines
        )
        self._live.update(table, refresh=True)

    def print_line(self, text: str, tone: Tone) -> None:
        """Write a permanent line above."""
        self._console.print(Text(text, style=RICH_STYLES[tone]))

    def stop(self) -> None:
        """Leave the lines on the screen and restore the terminal."""
        self._live.stop()

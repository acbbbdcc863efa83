"""The progress bar of a terminal; a module of its own because rich takes a while to import."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text


class StepBar(Progress):
    """A bar with the count of steps and a text; its tasks need the field `text`."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(
            BarColumn(bar_width=None),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),  # a narrow terminal shortens the bar, not the count
            TextColumn("{task.fields[text]}"),
            console=Console(file=stream, force_terminal=True, highlight=False),
            auto_refresh=False,
            expand=True,
        )

    def print_line(self, text: str, *, style: str) -> None:
        """Print a line above the bar."""
        self.console.print(Text(text, style=style))  # print(style=…) would also apply to the bar

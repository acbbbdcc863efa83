"""The progress bar of a terminal; a module of its own because rich takes a while to import."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column


def make_step_bar(stream: TextIO) -> Progress:
    """A bar without tasks; its tasks need the field `text`, which is shown after the count of steps."""
    return Progress(
        BarColumn(bar_width=None),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),  # a narrow terminal shortens the bar, not the count
        TextColumn("{task.fields[text]}"),
        console=Console(file=stream, force_terminal=True, highlight=False, markup=False, emoji=False),
        auto_refresh=False,
        expand=True,
    )

"""Printing of tables and lines."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

_PIPED_WIDTH = 160
"""Columns of a table that goes to a file or a pipe, where there is no window to ask."""


def _console() -> Console:
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PIPED_WIDTH, highlight=False)


def print_table(table: Table) -> None:
    """Print a table as wide as the window."""
    _console().print(table)


def print_line(line: str) -> None:
    """Print a line as it is."""
    _console().print(line, markup=False, soft_wrap=True)

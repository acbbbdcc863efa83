"""Print tables and lines."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

_PIPED_WIDTH = 160
"""Width of a table in columns when standard output is not a terminal."""


class _Output(Console):
    """Standard output; rich would exit with status 1 if the reader of a pipe, e.g. `head`, has left."""

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 - rich calls this while it handles the BrokenPipeError, which the command line handles


def _console() -> Console:
    """Prints text as it is: rich would draw the `:secret:` of an ARN as a sign, and leave out what is in brackets."""
    return _Output(
        file=sys.stdout, width=None if sys.stdout.isatty() else _PIPED_WIDTH, highlight=False, emoji=False, markup=False
    )


def print_table(table: Table) -> None:
    """Print a table in the width of the terminal."""
    _console().print(table)


def print_line(line: str) -> None:
    """Print a line without markup or wrapping."""
    _console().print(line, soft_wrap=True)

"""The closing table of a test session: which real parts ran, which did not, why, and what would enable them.

A fixture that starts a real part says `ran(name)` once it is up, or `skipped(name, reason, enable)`, which skips the test as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import pytest

ENGINES = (
    "Ray cluster",
    "torchrun",
    "MLflow server",
    "PostgreSQL",
    "S3 API",
    "Prometheus",
    "Alertmanager",
    "Kubernetes API",
    "Terraform AWS provider",
    "Pulumi engine",
    "GPU",
)
"""The parts that the table always has a row for; others get one when they are first named."""


@dataclass(frozen=True)
class Row:
    """What is known of one part: `outcome` is `ran`, `skipped` or `not asked for`."""

    outcome: str
    reason: str = ""
    enable: str = ""


_rows: dict[str, Row] = {}


def ran(name: str) -> None:
    """Record that a real part ran. It then counts as run, whatever else is said of it."""
    _rows[name] = Row("ran")


def absent(name: str, reason: str, enable: str) -> None:
    """Record that a part is not there, for a test that can do without it."""
    if name not in _rows:
        _rows[name] = Row("skipped", reason, enable)


def skipped(name: str, reason: str, enable: str) -> NoReturn:
    """Record that a part is not there and skip the test.

    Args:
        name: the part.
        reason: why it does not run here.
        enable: the command or condition that would make it run.
    """
    absent(name, reason, enable)
    pytest.skip(f"{name}: {reason}; to enable: {enable}")


def rows() -> dict[str, tuple[str, str, str]]:
    """What is known by now, as plain data that another process can add to its own."""
    return {name: (row.outcome, row.reason, row.enable) for name, row in _rows.items()}


def add_rows(rows: Mapping[str, tuple[str, str, str]]) -> None:
    """Add what another process knows: a part that ran in either of them has run."""
    for name, row in rows.items():
        if name not in _rows or row[0] == "ran":
            _rows[name] = Row(*row)


def table() -> list[str]:
    """The lines of the table, the fixed rows first."""
    names = [*ENGINES, *(name for name in _rows if name not in ENGINES)]
    rows = [(name, _rows.get(name, Row("not asked for"))) for name in names]
    cells = [("part", "", "why", "to enable"), *((name, row.outcome, row.reason, row.enable) for name, row in rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]

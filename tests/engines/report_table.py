"""The table at the end of a test session: which real services ran, which were skipped and why, and how to enable them.

A fixture that starts a service calls `ran(name)` once it is ready, or `skipped(name, reason, enable)`, which also skips the test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import pytest

SERVICES = (
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
"""Services with a fixed row; others get a row when a test first names them."""


@dataclass(frozen=True)
class Row:
    """The state of one service: `outcome` is `ran`, `skipped` or `not used`."""

    outcome: str
    reason: str = ""
    enable: str = ""


_rows: dict[str, Row] = {}


def ran(name: str) -> None:
    """Record that a service ran, which overrides a skip."""
    _rows[name] = Row("ran")


def absent(name: str, reason: str, enable: str) -> None:
    """Record that a service is missing, in a test that works without it."""
    if name not in _rows:
        _rows[name] = Row("skipped", reason, enable)


def skipped(name: str, reason: str, enable: str) -> NoReturn:
    """Record that a service is missing and skip the test.

    Args:
        name: the service.
        reason: why it does not run.
        enable: the command or condition that makes it run.
    """
    absent(name, reason, enable)
    pytest.skip(_told(name, Row("skipped", reason, enable)))


def rows() -> dict[str, tuple[str, str, str]]:
    """The rows so far, as plain data for another process."""
    return {name: (row.outcome, row.reason, row.enable) for name, row in _rows.items()}


def add_rows(rows: Mapping[str, tuple[str, str, str]]) -> None:
    """Merge the rows of another process; a service that ran in either process ran."""
    for name, row in rows.items():
        if name not in _rows or row[0] == "ran":
            _rows[name] = Row(*row)


def is_told(reason: str) -> bool:
    """Whether the table has this reason of a skip: that of a service, unless it ran elsewhere or was first skipped for another."""
    return any(_told(name, row) == reason for name, row in _rows.items())


def table(skips: Mapping[str, int]) -> list[str]:
    """The lines of the table, fixed rows first.

    Args:
        skips: number of skipped tests by reason, those of services among them.
    """
    names = [*SERVICES, *(name for name in _rows if name not in SERVICES)]
    rows = [(name, _rows.get(name, Row("not used"))) for name in names]
    counts = [skips.get(_told(name, row), 0) for name, row in rows]
    cells = [
        ("service", "", "tests", "why", "to enable"),
        *(
            (name, row.outcome, str(count or ""), row.reason, row.enable)
            for (name, row), count in zip(rows, counts, strict=True)
        ),
    ]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _told(name: str, row: Row) -> str:
    """The reason of the tests that a missing service skips."""
    return f"{name}: {row.reason}; to enable: {row.enable}"

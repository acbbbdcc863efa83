"""The results as a table, and the time that a benchmark takes, as announced before it starts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from observability.benchmarks.communication.cases import BATCH, STEPS
from observability.benchmarks.communication.measure import Measured

HEADER = [
    "case",
    "step (spread)",
    "time per sample to plain (spread)",
    "kB on the wire",
    "payload",
    "computed",
    "exposed, profile",
    "exposed, run",
    "loss",
]
NOTE = (
    "bytes that a host sends in a step, with and without headers, and computed; exposed communication as a share of a step; "
    f"loss on the test split after {STEPS} steps"
)
"""What the columns have."""

_START_SECONDS = 12.0
"""Until the ranks have imported torch and met; for as many ranks as hosts."""

_RUN_SECONDS = 2.5
"""Of a run beside its steps: rendezvous, first weights, profile, evaluation and checkpoint."""

_COMPUTE_SECONDS = 0.08
"""Of a step: 1,024 samples on two cores."""


def rows(results: Sequence[Measured]) -> list[list[str]]:
    """A row for each case."""
    return [_row(result) for result in results]


def _row(result: Measured) -> list[str]:
    seconds = [one.seconds for one in result.rounds]
    return [
        result.case.name,
        f"{1000 * statistics.median(seconds):.0f} ms ({1000 * min(seconds):.0f} to {1000 * max(seconds):.0f})",
        _ratio(result),
        *(_kilobytes(result.median(value)) for value in (lambda one: one.sent, lambda one: one.payload)),
        _kilobytes(result.expected_bytes),
        f"{result.median(lambda one: one.profiled_exposed / one.profiled_seconds):.0%}",
        f"{result.median(lambda one: one.exposed / one.seconds):.0%}",
        f"{result.rounds[-1].loss:.3f}",
    ]


def _ratio(result: Measured) -> str:
    if result.baseline is None:
        return "1"
    ratios = result.ratios
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _kilobytes(count: float) -> str:
    return f"{count / 1000:,.1f}" if count < 100_000 else f"{count / 1000:,.0f}"


def expected_seconds(groups: Sequence[Sequence[Measured]], *, rounds: int, megabits: float) -> float:
    """About how long the benchmark takes over links of so many Mbit/s."""
    return sum(
        _START_SECONDS * group[0].case.ranks_per_host
        + rounds * sum(_RUN_SECONDS + STEPS * _step_seconds(one, megabits) for one in group)
        for group in groups
    )


def _step_seconds(result: Measured, megabits: float) -> float:
    samples = result.case.sections.get("loop", {}).get("global_batch", BATCH)
    return float(_COMPUTE_SECONDS * samples / BATCH) + result.expected_bytes * 8e-6 / megabits

"""Runs both sides of a comparison alternately and summarizes the results."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Measurements of the platform and of a baseline, taken alternately.

    Attributes:
        name: what was compared.
        unit: unit of both sides.
        ours, theirs: measurement of the platform and of the baseline in each round.
        goal: largest acceptable ratio ours / theirs; smallest if `higher_is_better`.
        higher_is_better: whether both sides measure something good.
    """

    name: str
    unit: str
    ours: list[float]
    theirs: list[float]
    goal: float
    higher_is_better: bool = False

    @property
    def ratios(self) -> list[float]:
        """The ratio of each round, whose sides ran under similar load."""
        return [mine / other for mine, other in zip(self.ours, self.theirs, strict=True)]

    @property
    def ratio(self) -> float:
        """Median of the ratios."""
        return statistics.median(self.ratios)

    def row(self) -> list[str]:
        """Table cells: name, ours, theirs, ratio with its spread, goal."""
        low, high = min(self.ratios), max(self.ratios)
        is_reached = self.ratio >= self.goal if self.higher_is_better else self.ratio <= self.goal
        return [
            self.name,
            f"{statistics.median(self.ours):.4g} {self.unit}",
            f"{statistics.median(self.theirs):.4g} {self.unit}",
            f"{self.ratio:.3f} ({low:.3f} to {high:.3f}, {len(self.ratios)} rounds)",
            f"{self.goal:.2f}{'' if is_reached else ' missed'}",
        ]

    def dump(self) -> dict[str, Any]:
        """The comparison and its ratios as JSON types."""
        return {**asdict(self), "ratio": self.ratio, "ratios": self.ratios}


def measure_alternately(rounds: int, *sides: Callable[[], float]) -> list[list[float]]:
    """Measure each side once per round; every other round goes backwards, so that load drift favours none.

    Returns:
        For each side its measurements, one per round.
    """
    results: list[list[float]] = [[] for _ in sides]
    for number in range(rounds):
        print(f"  round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        order = list(zip(results, sides, strict=True))
        for measurements, measure in order if number % 2 == 0 else reversed(order):
            measurements.append(measure())
            print(f"    {measure.__name__}: {measurements[-1]:.4g}", file=sys.stderr, flush=True)
    return results


def run_module(module: str, *arguments: str, **environment: str) -> tuple[float, float, str]:
    """Run `python -m module`; returns its start as Unix time, its wall time in seconds and its standard output.

    Raises:
        RuntimeError: it failed; the message has the end of its output.
    """
    start = time.time()
    result = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=_REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.time() - start
    if result.returncode != 0:
        raise RuntimeError(
            f"{module} exited with status {result.returncode}:\n{(result.stdout + result.stderr)[-3000:]}"
        )
    return start, seconds, result.stdout


def parse_last_json(output: str) -> dict[str, Any]:
    """Parse the last line that is a JSON object.

    Raises:
        RuntimeError: no line is one.
    """
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            record: dict[str, Any] = json.loads(line)
            return record
    raise RuntimeError(f"no JSON object in: {output[-2000:]}")


def describe_machine() -> dict[str, Any]:
    """The hardware and software of this machine, as JSON types."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "python": platform.python_version(),
        "kernel": platform.release(),
    }

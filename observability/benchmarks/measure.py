"""Running the sides of a comparison in turns, and what is said of the results."""

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

PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A ratio of two sides that ran in turns.

    Attributes:
        name: what was compared.
        unit: unit of both sides.
        ours, theirs: one figure a round.
        goal: largest ratio ours / theirs that was aimed at.
    """

    name: str
    unit: str
    ours: list[float]
    theirs: list[float]
    goal: float

    @property
    def ratios(self) -> list[float]:
        """The ratio of each round: both sides of a round met the same state of the machine."""
        return [mine / other for mine, other in zip(self.ours, self.theirs, strict=True)]

    @property
    def ratio(self) -> float:
        """Median of the ratios."""
        return statistics.median(self.ratios)

    def row(self) -> list[str]:
        """Cells of a table: name, ours, theirs, ratio with its spread, goal."""
        low, high = min(self.ratios), max(self.ratios)
        return [
            self.name,
            f"{statistics.median(self.ours):.4g} {self.unit}",
            f"{statistics.median(self.theirs):.4g} {self.unit}",
            f"{self.ratio:.3f} ({low:.3f} to {high:.3f}, {len(self.ratios)} rounds)",
            f"{self.goal:.2f}{'' if self.ratio <= self.goal else ' missed'}",
        ]

    def dump(self) -> dict[str, Any]:
        """As JSON types, the ratio included."""
        return {**asdict(self), "ratio": self.ratio, "ratios": self.ratios}


def in_turns(rounds: int, ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Measure both sides once a round; which goes first alternates, so that a drift of the machine favours neither."""
    mine: list[float] = []
    others: list[float] = []
    for number in range(rounds):
        print(f"  round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        sides = [(mine, ours), (others, theirs)]
        for results, measure in sides if number % 2 == 0 else reversed(sides):
            results.append(measure())
    return mine, others


def run_module(module: str, *arguments: str, **environment: str) -> tuple[float, float, str]:
    """Run `python -m module`; when it began (seconds since the epoch), its wall time in seconds and what it printed.

    Raises:
        RuntimeError: it failed; with the end of what it printed.
    """
    began = time.time()
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=PROJECT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.time() - began
    if done.returncode != 0:
        raise RuntimeError(f"{module} ended with status {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return began, seconds, done.stdout


def last_json(printed: str) -> dict[str, Any]:
    """The last line that is a JSON object."""
    for line in reversed(printed.splitlines()):
        if line.startswith("{"):
            record: dict[str, Any] = json.loads(line)
            return record
    raise RuntimeError(f"no JSON line in: {printed[-2000:]}")


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
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

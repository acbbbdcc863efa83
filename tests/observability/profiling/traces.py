"""Traces with known times, as Kineto writes them, and the files of a profile around them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from observability.profiling.window import ProfileFolder, RankSteps, StepTimes, Window

BASE = 1_790_000_000.0
"""Unix time in seconds that the traces count from."""

MILLISECOND = 1e-3


def event(name: str, category: str, start: float, end: float, *, thread: str = "7") -> dict[str, Any]:
    """A record of a trace, from and to milliseconds since the base."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 0,
        "tid": thread,
        "ts": start * 1e3,
        "dur": (end - start) * 1e3,
        "args": {"External id": 1, "text": 'a "quoted" ] } text'},
    }


@dataclass(kw_only=True)
class Rank:
    """A rank's part of a profile, in milliseconds since `base`.

    Attributes:
        steps: when each step began, had its data, and ended.
        base: Unix time of its clock, in seconds.
    """

    steps: Sequence[tuple[float, float, float]]
    events: list[dict[str, Any]] = field(default_factory=list)
    data: float = 0.0
    checkpoint: float = 0.0
    base: float = BASE

    def times(self) -> list[StepTimes]:
        """The steps as the loop reports them."""
        return [
            StepTimes(
                step=10 + index,
                began=self.base + began * MILLISECOND,
                started=self.base + started * MILLISECOND,
                ended=self.base + ended * MILLISECOND,
                data_seconds=self.data * MILLISECOND,
                checkpoint_seconds=self.checkpoint * MILLISECOND,
            )
            for index, (began, started, ended) in enumerate(self.steps)
        ]


def write_trace(path: Path, events: Sequence[Mapping[str, Any]], *, base: float = BASE) -> None:
    """Write a trace as Kineto does: a header, one event after the other, and what follows them."""
    trace = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
        "baseTimeNanoseconds": round(base * 1e9),
        "traceEvents": [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}, *events],
        "traceName": path.name,
    }
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump(trace, file, indent=1)


def write_profile(run_directory: Path, ranks: Sequence[Rank]) -> ProfileFolder:
    """Write a profile of these ranks."""
    steps = len(ranks[0].steps)
    folder = ProfileFolder.of_step(run_directory, 10)
    folder.write_window(Window(first=10, last=9 + steps, world=len(ranks)))
    for number, rank in enumerate(ranks):
        write_trace(folder.trace(number), rank.events, base=rank.base)
        folder.write_rank_steps(RankSteps(rank=number, host=f"node-{number}", device="cpu", steps=rank.times()))
    return folder

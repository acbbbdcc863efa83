"""Runs the cases alternately, each in a process of its own, and reads the steps in its event log."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from observability.benchmarks.gpu.cases import WARM_UP_STEPS, Case, Group
from observability.benchmarks.measure import parse_last_json, run_module
from observability.runlog import Notice, Step, read_all, select
from training.launch.processes import DRIVER_VARIABLE
from training.launch.task import RankTask

_RANK = "observability.benchmarks.gpu.rank"
_ALL_REDUCE = "observability.benchmarks.gpu.all_reduce"
USED_FILE = "used.json"
"""What a rank has used, written next to its task file: `peak_bytes`, and its hardware by name."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """One run of a case.

    Attributes:
        seconds: of a step, the median of those after the warm-up.
        data_seconds: the part of them in which the loop waited for a batch.
        samples: per step.
        loss: of the last step.
        peak_bytes: most that tensors took on the GPU; on a CPU, the process.
        hardware: device, versions of torch and CUDA.
        notices: what the run said about attention.
    """

    seconds: float
    data_seconds: float
    samples: int
    loss: float
    peak_bytes: int
    hardware: dict[str, str]
    notices: list[str]


@dataclass(kw_only=True)
class Measured:
    """A case and its rounds; `problem` says why it could not run."""

    case: Case
    rounds: list[Round] = field(default_factory=list)
    problem: str = ""

    @property
    def seconds(self) -> float:
        """Of a step, in the median of the rounds."""
        return statistics.median(one.seconds for one in self.rounds)

    def dump(self) -> dict[str, Any]:
        """The measurement as JSON types."""
        return {"name": self.case.name, "problem": self.problem, "rounds": [asdict(one) for one in self.rounds]}


def measure(group: Group, *, rounds: int, scratch: Path) -> list[Measured]:
    """Run the cases of a group, every other round backwards, so that a clock that falls with the temperature favours none.

    A case that fails is not run again, and does not end the others: a model may not compile, or a kernel may not fit a GPU.
    """
    results = [Measured(case=case) for case in group.cases]
    for number in range(rounds):
        for result in results if number % 2 == 0 else reversed(results):
            if result.problem:
                continue
            print(
                f"measuring: {group.name}, {result.case.name}, round {number + 1} of {rounds} ...",
                file=sys.stderr,
                flush=True,
            )
            try:
                result.rounds.append(run_case(result.case, Path(tempfile.mkdtemp(dir=scratch))))
            except RuntimeError as error:
                result.problem = _reason(str(error))
    return results


def run_case(case: Case, folder: Path) -> Round:
    """Run a case once.

    Raises:
        RuntimeError: it failed; the message has the end of its output.
    """
    task = RankTask(settings=case.settings, run_directory=folder, attempt=0)
    file = folder / "task.json"
    file.write_text(json.dumps(task.dump()), encoding="utf-8")
    run_module(_RANK, str(file), **{DRIVER_VARIABLE: str(os.getpid())})
    events = list(read_all(folder))
    steps = select(events, Step)[WARM_UP_STEPS:]
    used = json.loads((folder / USED_FILE).read_text(encoding="utf-8"))
    return Round(
        seconds=statistics.median(step.seconds for step in steps),
        data_seconds=statistics.median(step.data_seconds for step in steps),
        samples=case.settings.loop.global_batch,
        loss=steps[-1].loss,
        peak_bytes=used.pop("peak_bytes"),
        hardware=used,
        notices=[one.message for one in select(events, Notice) if "attention" in one.message],
    )


def all_reduce(ranks: int) -> dict[str, Any]:
    """The bandwidth of an all-reduce of that many ranks of this machine (`training.conformance.all_reduce`).

    Raises:
        RuntimeError: it failed.
    """
    _, _, output = run_module("torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m", _ALL_REDUCE)
    return parse_last_json(output)


def _reason(output: str) -> str:
    """The last line that names an error, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "Error" in line), lines[-1])


def columns(results: list[Measured]) -> Iterator[list[str]]:
    """The rows of a group's table: step, throughput, ratio to the first case, wait for data, peak memory, last loss, notes."""
    first = results[0]
    for result in results:
        if not result.rounds:
            yield [result.case.name, *["-"] * 6, result.problem]
            continue
        newest, seconds = result.rounds[-1], result.seconds
        yield [
            result.case.name,
            f"{1000 * seconds:.2f} ms",
            f"{newest.samples / seconds:,.0f}",
            _ratio(result, first),
            f"{statistics.median(one.data_seconds for one in result.rounds) / seconds:.0%}",
            f"{max(one.peak_bytes for one in result.rounds) / 2**20:,.0f} MiB",
            f"{newest.loss:.4f}",
            "; ".join([*newest.notices, *([result.problem] if result.problem else [])]),
        ]


def _ratio(result: Measured, first: Measured) -> str:
    """Step time relative to the first case, round by round, with the spread."""
    if result is first or not first.rounds:
        return "1" if result is first else "-"
    ratios = [mine.seconds / other.seconds for mine, other in zip(result.rounds, first.rounds, strict=False)]
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"

"""Compare the platform with its baselines, print a table and write a JSON file."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from observability.benchmarks import (
    checkpoint_stall,
    checkpoint_store,
    early_stopping,
    equal_bits,
    overhead,
    reading_order,
    reading_path,
    scaling,
    search,
    validation,
    whole_run,
)
from observability.benchmarks.communication import command as communication
from observability.benchmarks.local_s3 import local_s3
from observability.benchmarks.measure import Comparison, describe_machine
from observability.benchmarks.options import ComparisonName, comparisons
from observability.benchmarks.scaling_plot import draw
from training.config.schema import TrainingSettings

_HEADER = ["comparison", "ours", "theirs", "ratio (spread)", "goal"]


def main() -> int:
    """Run the comparisons and print them; a missed goal does not change the exit status."""
    arguments = comparisons().parse_args()
    file = arguments.json / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    with tempfile.TemporaryDirectory(prefix="rtp-bench-") as folder:
        scratch = Path(folder)
        if arguments.only == "communication":
            return communication.run(
                arguments.cases, rounds=arguments.rounds, megabits=arguments.rate, file=file, scratch=scratch
            )
        results = _Results(file)
        for name, measure in _MEASUREMENTS.items():
            if arguments.only in {None, name}:
                measure(results, arguments.rounds, scratch)
        if arguments.only == "checkpoint_store":
            _store(results, rounds=arguments.rounds, megabytes=arguments.megabytes, scratch=scratch)
        if arguments.only == "scaling":
            _scale(results, arguments.workers, rounds=arguments.rounds, scratch=scratch, plot=file.with_suffix(".png"))
    print(f"\n{describe_machine()}\nwritten to {file}")
    return 0


class _Results:
    """Results so far; each comparison is printed and written as soon as it ends, because one may take minutes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._comparisons: list[Comparison] = []
        file.parent.mkdir(parents=True, exist_ok=True)
        _print_row(_HEADER)
        _print_row(["---"] * len(_HEADER))

    def add(self, *comparisons: Comparison, parts: Mapping[str, float] | None = None) -> None:
        """Add comparisons, and the seconds of each part of the time to the first step if they were measured."""
        parts = parts or {}
        self._comparisons += comparisons
        for comparison in comparisons:
            _print_row(comparison.row())
        for name, seconds in parts.items():
            print(f"  {seconds:7.3f} s  {name}")
        record = {
            "machine": describe_machine(),
            "comparisons": [one.dump() for one in self._comparisons],
            "first_step_parts": parts,
        }
        self._file.write_text(json.dumps(record, indent=2), encoding="utf-8")


def _checkpoint(results: _Results, rounds: int, scratch: Path) -> None:
    _print_status("checkpoint stall")
    results.add(checkpoint_stall.compare(rounds=10 * rounds, scratch=scratch))


def _overhead(results: _Results, rounds: int, scratch: Path) -> None:
    for name, settings in _overhead_jobs().items():
        _print_status(f"step time, {name}")
        results.add(*overhead.compare(name, settings, rounds=rounds, scratch=scratch))


def _metrics(results: _Results, rounds: int, scratch: Path) -> None:
    for name, settings in _overhead_jobs().items():
        _print_status(f"metrics, {name}")
        results.add(*overhead.compare_metrics(name, settings, rounds=rounds, scratch=scratch))


def _equal_bits(results: _Results, rounds: int, scratch: Path) -> None:
    for case in equal_bits.CASES:
        _print_status(case.name)
        results.add(*equal_bits.compare(case, rounds=rounds, scratch=scratch))


def _whole_run(results: _Results, rounds: int, scratch: Path) -> None:
    _print_status("whole run, first step")
    comparisons, parts = whole_run.compare(TrainingSettings(), rounds=rounds, scratch=scratch)
    results.add(*comparisons, parts=parts)


def _tune(results: _Results, rounds: int, scratch: Path) -> None:
    for concurrency in (1, 2):
        _print_status(f"search, {concurrency} at a time")
        # A round takes minutes.
        results.add(*search.compare(_trial(), concurrency=concurrency, rounds=max(1, rounds // 3), scratch=scratch))


def _asha(results: _Results, _rounds: int, scratch: Path) -> None:
    _print_status("early stopping")
    outcomes = early_stopping.measure(seeds=range(3), scratch=scratch)
    results.add(*early_stopping.compare(_printed(outcomes)))


def _data(results: _Results, rounds: int, scratch: Path) -> None:
    _print_status("order of reading")
    results.add(*reading_order.compare(rounds=rounds, scratch=scratch))
    _print_status("Ray Data")
    results.add(*reading_path.compare(rounds=rounds, scratch=scratch))


def _validation(results: _Results, rounds: int, scratch: Path) -> None:
    for workers in (1, 2):
        _print_status(f"validation, {workers} worker{'s' * (workers != 1)}")
        # A round takes minutes.
        results.add(validation.compare(workers, rounds=max(1, rounds // 2), scratch=scratch))


_MEASUREMENTS: Mapping[ComparisonName, Callable[[_Results, int, Path], None]] = {
    "checkpoint": _checkpoint,
    "overhead": _overhead,
    "metrics": _metrics,
    "equal-bits": _equal_bits,
    "whole-run": _whole_run,
    "tune": _tune,
    "asha": _asha,
    "data": _data,
    "validation": _validation,
}
"""The comparisons of `make bench` by name, each with results, rounds and a scratch folder."""


def _store(results: _Results, *, rounds: int, megabytes: int, scratch: Path) -> None:
    """Measure against an S3 API on this machine."""
    _print_status("checkpoints behind S3")
    with local_s3(scratch / "s3.log") as remote:
        for comparison in checkpoint_store.compare(remote, rounds=rounds, megabytes=megabytes, scratch=scratch):
            results.add(comparison)


def _scale(results: _Results, workers: Sequence[int], *, rounds: int, scratch: Path, plot: Path) -> None:
    """Measure each number of workers, print the table and draw the plot."""
    points = []
    for number in workers:
        _print_status(f"{number} worker{'s' * (number != 1)}")
        points.append(scaling.measure(number, rounds=rounds, scratch=scratch))
        results.add(*points[-1].comparisons())
    print()
    header, *rows = scaling.table(points)
    for row in (header, ["---"] * len(header), *rows):
        _print_row(row)
    draw(points, plot)
    print(f"plot: {plot}")


def _printed(outcomes: Iterable[early_stopping.Outcome]) -> Iterator[early_stopping.Outcome]:
    """Print each as soon as it is there."""
    for outcome in outcomes:
        print(f"  {outcome}", flush=True)
        yield outcome


def _trial() -> TrainingSettings:
    """The default run with one worker."""
    return TrainingSettings.model_validate({"scale": {"workers": 1}})


def _overhead_jobs() -> dict[str, TrainingSettings]:
    """A small network, where overhead is most visible, and a larger one."""
    common = {"scale": {"launcher": "torchrun", "workers": 2}, "tracking": {"enabled": False}}
    small = {"data": {"augment": False}, "loop": {"epochs": 1000, "max_steps": 400, "evaluate_every": 1000}}
    resnet = {
        "model": {"name": "resnet18", "options": {"stem": "cifar"}},
        "data": {
            "dataset": "synthetic",
            "augment": False,
            "options": {"kind": "images", "channels": 3, "height": 32, "width": 32, "samples": 2048},
        },
        "loop": {"epochs": 100, "max_steps": 70, "evaluate_every": 1000, "global_batch": 64},
    }
    return {
        "simple_cnn on digits": TrainingSettings.model_validate({**common, **small}),
        "resnet18 on 32 x 32": TrainingSettings.model_validate({**common, **resnet}),
    }


def _print_status(what: str) -> None:
    print(f"measuring: {what} ...", file=sys.stderr, flush=True)


def _print_row(cells: list[str]) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main())

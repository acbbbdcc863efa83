"""`python -m observability.benchmarks`: every comparison, side by side, with a table and a JSON file for later comparison."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from observability.benchmarks import checkpoint_stall, overhead, whole_run
from observability.benchmarks.measure import Comparison, machine
from training.config.schema import TrainingSettings

_HEADINGS = ["comparison", "ours", "theirs", "ratio (spread)", "goal"]


def main() -> int:
    """Run the comparisons and print them; the exit status says only whether they could be run."""
    parser = argparse.ArgumentParser(prog="python -m observability.benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each comparison (default 5)")
    parser.add_argument("--only", choices=["overhead", "whole-run", "checkpoint"], help="one comparison alone")
    parser.add_argument(
        "--json", type=Path, default=Path(".local/bench"), help="folder of the JSON files (default .local/bench)"
    )
    arguments = parser.parse_args()
    file = arguments.json / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    record = _Record(file)
    with tempfile.TemporaryDirectory(prefix="rtp-bench-") as folder:
        scratch = Path(folder)
        if arguments.only in {None, "checkpoint"}:
            _say("checkpoint stall")
            record.add(checkpoint_stall.compare(rounds=10 * arguments.rounds, scratch=scratch))
        if arguments.only in {None, "overhead"}:
            for name, settings in _overhead_jobs().items():
                _say(f"step time, {name}")
                record.add(*overhead.compare(name, settings, rounds=arguments.rounds, scratch=scratch))
        if arguments.only in {None, "whole-run"}:
            _say("whole run, first step")
            found, parts = whole_run.compare(_default_job(), rounds=arguments.rounds, scratch=scratch)
            record.add(*found, parts=parts)
    print(f"\n{machine()}\nwritten to {file}")
    return 0


class _Record:
    """What has been measured so far: each comparison is printed and written when it is done, for it may take minutes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._comparisons: list[Comparison] = []
        file.parent.mkdir(parents=True, exist_ok=True)
        _print_row(_HEADINGS)
        _print_row(["---"] * len(_HEADINGS))

    def add(self, *comparisons: Comparison, parts: Mapping[str, float] | None = None) -> None:
        """Take comparisons, and the parts of the first step in seconds where they were measured."""
        parts = parts or {}
        self._comparisons += comparisons
        for comparison in comparisons:
            _print_row(comparison.row())
        for name, seconds in parts.items():
            print(f"  {seconds:7.3f} s  {name}")
        record = {
            "machine": machine(),
            "comparisons": [one.dump() for one in self._comparisons],
            "first_step_parts": parts,
        }
        self._file.write_text(json.dumps(record, indent=2), encoding="utf-8")


def _overhead_jobs() -> dict[str, TrainingSettings]:
    """A small network, where every microsecond shows, and one of ordinary weight."""
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


def _default_job() -> TrainingSettings:
    return TrainingSettings()


def _say(what: str) -> None:
    print(f"measuring: {what} ...", file=sys.stderr, flush=True)


def _print_row(cells: list[str]) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main())

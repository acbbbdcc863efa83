"""What validation next to the training saves: the wall time of a run with `loop.validation=async`, relative to one with `inline`."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from observability.benchmarks.measure import Comparison, measure_alternately
from observability.benchmarks.timed_run import run_platform
from observability.runlog import Evaluated, TrainingStarted, read_all, select
from training.config.schema import TrainingSettings
from training.launch.task import OUTCOME_FILE

GOAL = 1.0
"""Wall time relative to evaluations between the epochs: it must not take longer."""

_EPOCHS = 4
_SAMPLES = 256
"""Of an epoch, and of its validation: a forward pass takes about a third of a step, so validation is a quarter of the loop."""


def compare(workers: int, *, rounds: int, scratch: Path) -> Comparison:
    """Compare runs with a number of workers, from the first step to the end of rank 0.

    Raises:
        RuntimeError: the metrics or the final weights of the two differ in a bit, or an epoch was not validated.
    """

    def run(validation: str) -> tuple[float, list[object]]:
        folder = Path(tempfile.mkdtemp(dir=scratch))
        run_platform(_job(workers, validation), folder)
        events = read_all(folder)
        seconds = time.time() - select(events, TrainingStarted)[0].time
        outcome = json.loads((folder / OUTCOME_FILE).read_text(encoding="utf-8"))
        evaluated = sorted((event.step, event.split, event.loss) for event in select(events, Evaluated))
        return seconds, [outcome["weights_sha256"], *evaluated]

    results: list[list[object]] = []

    def ours() -> float:
        seconds, result = run("async")
        results.append(result)
        return seconds

    def theirs() -> float:
        seconds, result = run("inline")
        results.append(result)
        return seconds

    beside, between = measure_alternately(rounds, ours, theirs)
    if different := [result for result in results if result != results[0]]:
        raise RuntimeError(f"the runs differ: {results[0]} and {different[0]}")
    name = f"validation next to the training, {workers} worker{'s' * (workers != 1)}"
    return Comparison(name=name, unit="s", ours=beside, theirs=between, goal=GOAL)


def _job(workers: int, validation: str) -> TrainingSettings:
    """ResNet-18, whose workers have a core each."""
    synthetic = {"kind": "images", "height": 32, "width": 32, "samples": _SAMPLES, "evaluation_samples": _SAMPLES}
    return TrainingSettings.model_validate(
        {
            "model": {"name": "resnet18", "options": {"stem": "cifar"}},
            "data": {"dataset": "synthetic", "augment": False, "options": synthetic},
            "loop": {"epochs": _EPOCHS, "global_batch": 64, "evaluation_batch": 64, "validation": validation},
            "scale": {"launcher": "torchrun", "workers": workers},
            "tracking": {"enabled": False},
            "metrics": {"exporter": "none"},
        }
    )

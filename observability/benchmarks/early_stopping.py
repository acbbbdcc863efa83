"""Worker-seconds and accuracy of a search with early stopping, of random search that trains every trial to its end, and of no search.

Both searches draw the same values from the space of the shipped search, because random search does not depend on results. They
differ only in the scheduler. Accuracies are those of the test split, which no search has seen; the validation split chooses the trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from observability.benchmarks.measure import Comparison, run_module
from observability.runlog import Evaluated, read_all, select
from tune.history import SearchHistory

SECONDS_GOAL: Final = 0.5
ACCURACY_GOAL: Final = 1.0

_CONFIG: Final = "digits"
_ASHA, _RANDOM, _DEFAULT = "ASHA", "random search", "default config"
_SCHEDULERS: Final = {_ASHA: "{name: asha, grace_epochs: 1, reduction_factor: 3}", _RANDOM: "{name: none}"}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a search took and found, or a run of the default configuration.

    Attributes:
        name: which of them.
        seed: of the search and of its trials, or of the run.
        epochs: epochs that were trained.
        worker_seconds: seconds of all trials' workers; 0 for the run.
        accuracy: test accuracy of the best trial that trained to its end, or of the run.
    """

    name: str
    seed: int
    epochs: int
    worker_seconds: float
    accuracy: float

    def __str__(self) -> str:
        seconds = f"{self.worker_seconds:.1f} worker-seconds, " if self.worker_seconds else ""
        return f"seed {self.seed}, {self.name}: {self.epochs} epochs, {seconds}test accuracy {self.accuracy:.4f}"


def measure(*, seeds: Iterable[int], scratch: Path) -> Iterator[Outcome]:
    """Search with both schedulers and train the default configuration, for each seed."""
    for seed in seeds:
        for name in _SCHEDULERS if seed % 2 == 0 else reversed(_SCHEDULERS):
            yield _search(name, seed, scratch)
        yield _train(seed, scratch)


def compare(outcomes: Iterable[Outcome]) -> list[Comparison]:
    """Compare what `measure` gave; one round is one seed."""
    by_name: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_name.setdefault(outcome.name, []).append(outcome)
    asha, random, default = by_name[_ASHA], by_name[_RANDOM], by_name[_DEFAULT]
    return [
        Comparison(
            name=f"worker-seconds, {_ASHA} and {_RANDOM}",
            unit="s",
            ours=[one.worker_seconds for one in asha],
            theirs=[one.worker_seconds for one in random],
            goal=SECONDS_GOAL,
        ),
        Comparison(
            name=f"test accuracy, {_ASHA} and {_DEFAULT}",
            unit="",
            ours=[one.accuracy for one in asha],
            theirs=[one.accuracy for one in default],
            goal=ACCURACY_GOAL,
            higher_is_better=True,
        ),
    ]


def _search(name: str, seed: int, scratch: Path) -> Outcome:
    directory = scratch / "searches" / str(seed) / name.replace(" ", "-")
    _run(
        ("tune", "search"),
        f"search.directory={directory}",
        f"search.seed={seed}",
        f"run.seed={seed}",
        "search.algorithm=random",
        f"search.scheduler={_SCHEDULERS[name]}",
    )
    history = SearchHistory.read(directory / "bench")
    best = next(trial for trial in history.ranked() if trial.status == "done")
    return Outcome(
        name=name,
        seed=seed,
        epochs=sum(trial.epoch for trial in history.trials.values()),
        worker_seconds=history.worker_seconds,
        accuracy=_test_accuracy(directory / "bench" / "trials" / best.id)[1],
    )


def _train(seed: int, scratch: Path) -> Outcome:
    directory = scratch / "runs" / str(seed)
    _run(("training", "train"), f"run.directory={directory}", f"run.seed={seed}")
    epochs, accuracy = _test_accuracy(directory / "bench")
    return Outcome(name=_DEFAULT, seed=seed, epochs=epochs, worker_seconds=0, accuracy=accuracy)


def _run(command: tuple[str, str], *overrides: str) -> None:
    changes = [part for override in (*overrides, "tracking.enabled=false") for part in ("--set", override)]
    run_module(*command, "--config", _CONFIG, "--name", "bench", *changes)


def _test_accuracy(run: Path) -> tuple[int, float]:
    """Epochs of a run, and its test accuracy after them."""
    tested = next(one for one in select(read_all(run), Evaluated) if one.split == "test")
    return tested.epoch, tested.metrics["accuracy"]

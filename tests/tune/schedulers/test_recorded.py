"""A continued search of the real Ray Tune decides as if it had not been interrupted, and reports what it stops."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.tune.schedulers.toy import METRIC, RATE, Log, outcome, search
from tests.tune.spaces import search_settings
from training.config.schema import OptionValue
from tune.history import SearchHistory
from tune.schedulers.build import make_scheduler
from tune.schedulers.recorded import RecordedScheduler, Stop
from tune.space.space import Space

pytestmark = pytest.mark.usefixtures("ray_cluster")

EPOCHS = 9
DRAW = random.Random(5)
TRIALS: list[dict[str, OptionValue]] = [{RATE: DRAW.uniform(1e-3, 1e-1)} for _ in range(12)]
SCHEDULERS: list[dict[str, Any]] = [
    {"name": "asha"},
    {"name": "asha", "brackets": 2},
    {"name": "median"},
    {"name": "hyperband"},
]


def gain(values: Mapping[str, Any], epoch: int, accuracy: float) -> float:
    """The order of the trials changes with the epochs."""
    return random.Random(f"{values[RATE]}/{epoch}").random() + float(values[RATE])


def run(
    directory: Path,
    scheduler: dict[str, Any],
    *,
    after_results: int | None = None,
    concurrency: int = 1,
    trials: Sequence[Mapping[str, OptionValue]] = TRIALS,
) -> tuple[Log, list[Stop]]:
    settings = search_settings(scheduler, trials=12)
    stops: list[Stop] = []

    def make(history: SearchHistory, log: Log) -> RecordedScheduler:
        def on_stop(stop: Stop) -> None:
            stops.append(stop)
            log.stopped.append(stop.trial)

        space = Space.of(settings.space)
        return make_scheduler(
            settings, space, epochs=EPOCHS, metric=METRIC, mode="max", history=history, on_stop=on_stop
        )

    log = search(
        directory, trials, make=make, gain=gain, epochs=EPOCHS, concurrency=concurrency, after_results=after_results
    )
    return log, stops


@pytest.mark.parametrize(
    "scheduler", [SCHEDULERS[0], *(pytest.param(one, marks=pytest.mark.long) for one in SCHEDULERS[1:])], ids=str
)
def test_a_continued_search_stops_the_same_trials_at_the_same_epochs(tmp_path: Path, scheduler: dict[str, Any]) -> None:
    """One trial at a time, or for hyperband four: both orders of events are those of an uninterrupted search."""
    concurrency = 4 if scheduler["name"] == "hyperband" else 1
    whole, stops = run(tmp_path / "whole", scheduler, concurrency=concurrency)
    wanted = outcome(whole.history)
    assert {status for status, _ in wanted.values()} == {"done", "stopped"}
    assert {(stop.trial, stop.epoch) for stop in stops} == {
        (name, epoch) for name, (status, epoch) in wanted.items() if status == "stopped"
    }
    half = sum(epoch for _, epoch in wanted.values()) // 2
    _, before = run(tmp_path / "parted", scheduler, concurrency=concurrency, after_results=half)
    interrupted = outcome(SearchHistory.read(tmp_path / "parted"))
    assert None in {status for status, _ in interrupted.values()}
    continued, after = run(tmp_path / "parted", scheduler, concurrency=concurrency)
    assert outcome(continued.history) == wanted
    # A driver that is killed between a decision and its record leaves it to the next one, which decides it again.
    assert {(stop.trial, stop.epoch) for stop in [*before, *after]} == {(stop.trial, stop.epoch) for stop in stops}


@pytest.mark.long
@pytest.mark.parametrize("failure", ["fails_at", "raises_at"])
def test_a_bracket_goes_on_without_a_trial_that_fails_between_its_rungs(tmp_path: Path, failure: str) -> None:
    """The third bracket has the last four trials, of which three pass its rung at epoch 1, and one that at epoch 3."""
    failing = [{**values, failure: 2} if number == 8 else values for number, values in enumerate(TRIALS)]
    log, _ = run(tmp_path, {"name": "hyperband"}, concurrency=4, trials=failing)
    ends = outcome(log.history)
    assert ends["t008"] == ("failed", 1)
    assert sorted(ends[name] for name in ("t009", "t010", "t011")) == [("done", 9), ("stopped", 1), ("stopped", 3)]


def test_trials_that_run_one_by_one_fill_the_same_brackets(tmp_path: Path) -> None:
    """The first bracket trains three trials to the end; of the next five, two pass the rung at epoch 3."""
    log, _ = run(tmp_path, {"name": "hyperband"}, concurrency=1)
    epochs = [trial.epoch for trial in log.history.trials.values()]
    assert epochs[:3] == [9, 9, 9]
    assert sorted(epochs[3:8]) == [3, 3, 3, 9, 9]
    assert sorted(epochs[8:]) == [1, 3, 3, 9]

"""Searches of the real Ray Tune: a continued one decides as if it had not been interrupted, and populations copy within their space."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.tune.execution import tune_controller

from tests.engines.ray_cluster import SLOTS, short_folder
from tests.engines.report_table import ran
from tests.tune.schedulers.toy import METRIC, RATE, Log, journal, outcome, search
from tests.tune.spaces import search_settings
from training.config.schema import OptionValue
from training.launch.ray_node import LocalNode
from tune.history import SearchHistory
from tune.schedulers.build import make_scheduler
from tune.schedulers.population import Exploit
from tune.schedulers.recorded import RecordedScheduler, Stop
from tune.space.space import Space

pytestmark = pytest.mark.usefixtures("ray_cluster")

_ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_worker_register_timeout_seconds": "300",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
}


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    """A Ray node that the tests of this file share. It has no agent to make runtime environments, which Ray Tune asks for."""
    with pytest.MonkeyPatch.context() as patch, short_folder() as folder:
        for name, value in _ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setattr(tune_controller, "_ActorClassCache", lambda: SimpleNamespace(get=cache(ray.remote)))
        node = LocalNode(cpus=SLOTS, gpus=0, folder=folder, start_timeout=300)
        try:
            ray.init(node.address, log_to_driver=False, logging_level=logging.ERROR)
            yield
            ran("Ray cluster")
        finally:
            ray.shutdown()
            node.stop()


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
    "scheduler", [SCHEDULERS[0], *(pytest.param(one, marks=pytest.mark.extended) for one in SCHEDULERS[1:])], ids=str
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


@pytest.mark.extended
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


AXES = {
    RATE: {"log_uniform": [1e-3, 1e-1]},
    "loop.accumulation": {"integer": [1, 4]},
    "schedule.name": {"choice": ["cosine", "constant", "step"]},
    "schedule.gamma": {"uniform": [0.1, 0.9], "when": {"schedule.name": "step"}},
    "model.options.width": {"integer": [8, 64]},
    "optimizer.name": "sgd",
}

POPULATION: list[dict[str, OptionValue]] = [
    {RATE: 0.001, "loop.accumulation": 1, "schedule.name": "cosine", "model.options.width": 8, "optimizer.name": "sgd"},
    {RATE: 0.01, "loop.accumulation": 2, "schedule.name": "constant", "model.options.width": 16, "optimizer.name": "sgd"},
    {RATE: 0.08, "loop.accumulation": 4, "schedule.name": "step", "schedule.gamma": 0.85, "model.options.width": 32,
     "optimizer.name": "sgd"},
    {RATE: 0.1, "loop.accumulation": 3, "schedule.name": "constant", "model.options.width": 64, "optimizer.name": "sgd"},
]  # fmt: skip


def gain_of_rate(values: Mapping[str, Any], epoch: int, accuracy: float) -> float:
    """A high rate is best."""
    del epoch, accuracy
    return math.log10(values[RATE]) + 4.0


def evolve(
    directory: Path, scheduler: str, *, epochs: int = 12, concurrency: int = SLOTS
) -> tuple[Log, list[Exploit], Space]:
    settings = search_settings({"name": scheduler, "every_epochs": 2}, AXES, trials=4)
    space = Space.of(settings.space)
    exploits: list[Exploit] = []

    def make(history: SearchHistory, log: Log) -> RecordedScheduler:
        return make_scheduler(
            settings, space, epochs=epochs, metric=METRIC, mode="max", history=history, on_exploit=exploits.append
        )

    log = search(directory, POPULATION, make=make, gain=gain_of_rate, epochs=epochs, concurrency=concurrency)
    return log, exploits, space


@pytest.mark.parametrize("scheduler", ["pbt", pytest.param("pb2", marks=pytest.mark.extended)])
def test_bad_trials_continue_from_good_ones_with_values_of_the_space(tmp_path: Path, scheduler: str) -> None:
    log, exploits, space = evolve(tmp_path, scheduler)
    assert len(exploits) >= 2
    reported = {(result["trial"], result["epoch"], result[METRIC]) for result in log.results}
    loads = [load for load in journal(tmp_path) if load["by"] != load["of"]]
    assert [(load["by"], load["of"], load["epoch"]) for load in loads] == [
        (exploit.trial, exploit.donor, exploit.epoch) for exploit in exploits
    ]
    assert all((load["of"], load["epoch"], load["accuracy"]) in reported for load in loads)
    for exploit in exploits:
        assert exploit.step == 10 * exploit.epoch
        assert space.holds(exploit.values), exploit
        assert exploit.values["model.options.width"] in {16, 32, 64}  # t000 is never copied
    for result in log.results:
        values = {key: result[key] for key in AXES if key in result}
        assert space.holds(values), result
    assert {trial.id: trial.epoch for trial in log.history.trials.values()} == dict.fromkeys(log.history.trials, 12)


def test_a_population_larger_than_the_machine_takes_turns(tmp_path: Path) -> None:
    log, exploits, _ = evolve(tmp_path, "pbt", epochs=8, concurrency=2)
    assert exploits
    assert all(trial.status == "done" and trial.epoch == 8 for trial in log.history.trials.values())

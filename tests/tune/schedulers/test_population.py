"""Populations of the real Ray Tune: bad trials continue from good ones' checkpoints, with values inside their axes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.engines.ray_cluster import SLOTS
from tests.tune.schedulers.toy import METRIC, RATE, Log, journal, search
from tests.tune.spaces import search_settings
from training.config.schema import OptionValue
from tune.history import SearchHistory
from tune.schedulers.build import make_scheduler
from tune.schedulers.population import Exploit
from tune.schedulers.recorded import RecordedScheduler
from tune.space.space import Space

pytestmark = pytest.mark.usefixtures("ray_cluster")

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


def gain(values: Mapping[str, Any], epoch: int, accuracy: float) -> float:
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

    log = search(directory, POPULATION, make=make, gain=gain, epochs=epochs, concurrency=concurrency)
    return log, exploits, space


@pytest.mark.parametrize("scheduler", ["pbt", pytest.param("pb2", marks=pytest.mark.long)])
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

"""The life of a search with real Ray: its driver is killed or interrupted, its ranks die, its trials fail."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from observability.runlog import Restored, RunStarted, read_all, select
from tests.distribution import RAY
from tests.training.runs import run_alone
from tests.tune.search_driver import SearchDriver, assert_counted_once, drivers, fingerprints, search_of
from training.config.load import load_settings
from training.errors import ExitStatus
from tune.events import TrialReported
from tune.history import SearchHistory

pytestmark = pytest.mark.xdist_group(RAY)

RATES = {"optimizer.learning_rate": {"log_uniform": [1e-4, 1e-1]}}
FREQUENT = {"checkpoint": {"every_steps": 5}}
CRASHING = """
import os

from torch import nn


def make(spec, crash: bool = False, trace: str = "") -> nn.Module:
    with open(trace, "a") as file:
        file.write(f"{os.getpid()}\\n")
    if crash:
        raise ValueError("the width must be even")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
"""


def trial_folder(search: Path, name: str) -> Path:
    return search / "trials" / name


def ended_trials(search: Path) -> dict[str, dict[str, str]]:
    """The trials that have ended, with the fingerprints of their folders."""
    trials = SearchHistory.read(search).trials
    return {name: fingerprints(trial_folder(search, name)) for name, trial in trials.items() if trial.ended}


@pytest.mark.long
def test_a_search_whose_driver_is_killed_twice_counts_every_trial_once(tmp_path: Path) -> None:
    """It ends with the trials that it would have had, and the best one has the weights of a run of its own."""
    draw = random.Random(20)
    settings = search_of(
        space=RATES,
        epochs=12,
        shared=FREQUENT,
        algorithm="random",
        trials=6,
        scheduler={"name": "asha", "grace_epochs": 4, "reduction_factor": 2},
    )
    search = tmp_path / "s"
    for number in (1, 2):
        with SearchDriver(tmp_path, settings) as driver:
            for _ in range(draw.randrange(2, 5)):
                assert driver.wait_for(lambda event: isinstance(event, TrialReported))
            time.sleep(draw.random() / 4)  # anywhere between two evaluations
            driver.kill()
            driver.wait_for_descendants()
        assert drivers(search) == number
        before = ended_trials(search)
        known = SearchHistory.read(search).trials
        interrupted = [name for name, trial in known.items() if trial.ended is None and trial.reports]
        values = {name: trial.values for name, trial in known.items()}
    with SearchDriver(tmp_path, settings) as driver:
        ended = driver.end()
    assert ended.status == ExitStatus.DONE, ended.out + ended.err
    assert_counted_once(search, trials=6)
    trials = SearchHistory.read(search).trials
    assert {name: trials[name].values for name in values} == values
    for name, files in before.items():
        assert fingerprints(trial_folder(search, name)) == files
    assert interrupted
    for name in interrupted:
        events = read_all(trial_folder(search, name))
        starts = [index for index, event in enumerate(events) if isinstance(event, RunStarted)]
        if trials[name].epoch > known[name].epoch:
            assert select(events[starts[-1] :], Restored), name
    best = SearchHistory.read(search).ranked()[0]
    assert f"make train CONFIG={search}/best.yaml NAME=s-{best.id}\n" in ended.out
    alone = run_alone(load_settings([search / "best.yaml"], ["scale.launcher=plain"]), tmp_path / "alone")
    assert best.ended is not None
    assert best.ended.weights_sha256 == alone.weights_sha256


@pytest.mark.long
def test_a_trial_that_fails_says_why_and_too_many_end_the_search(tmp_path: Path) -> None:
    """The others go on. A search that is continued does not try those again that have failed."""
    settings = search_of(
        space={
            "model.options.crash": {"choice": [False, True]},
            "optimizer.learning_rate": {"choice": [1e30, 0.01]},
        },
        epochs=2,
        shared={
            "model": {"name": "crashing:make", "options": {"trace": str(tmp_path / "processes")}},
            "optimizer": {"name": "sgd"},
            "loop": {"epochs": 2, "nonfinite": "skip"},
        },
        algorithm="grid",
        objectives={"validation_loss": "min"},
        concurrency=1,
        stop={"failures": 2},
    )
    code = tmp_path / "own"
    code.mkdir()
    (code / "crashing.py").write_text(CRASHING, encoding="utf-8")
    search = tmp_path / "s"
    with SearchDriver(tmp_path, settings, code=code) as driver:
        ended = driver.end()
    assert ended.status == ExitStatus.FAILED, ended.out + ended.err
    assert "Traceback" not in ended.out + ended.err
    trials = SearchHistory.read(search).trials
    assert {name: trial.status for name, trial in trials.items()} == {
        "t001": "failed",
        "t002": "done",
        "t003": "failed",
    }
    assert "validation_loss is nan after epoch 1, which cannot be compared with other trials" in ended.out
    assert "t003: rank 0 failed: ValueError: the width must be even" in ended.out
    failed = trials["t003"]
    assert failed.ended is not None
    assert "crashing.py" in failed.ended.message
    assert failed.worker_seconds > 0
    assert (search / "best.yaml").exists()
    processes = (tmp_path / "processes").read_text().split()
    assert len(processes) >= 3
    assert len(set(processes)) == 1  # it outlives the trials that fail in it
    before = ended_trials(search)
    with SearchDriver(tmp_path, settings, "search.stop.failures=4", code=code) as driver:
        ended = driver.end()
    assert ended.status == ExitStatus.DONE, ended.out + ended.err
    assert_counted_once(search, trials=4)
    for name, files in before.items():
        assert fingerprints(trial_folder(search, name)) == files

"""The life of a search with real Ray: its driver is killed or interrupted, its ranks die, its trials fail."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from observability.runlog import Notice, Restored, RunEnded, RunStarted, Step, read_all, select
from tests.distribution import RAY
from tests.training.launch.driver import PATIENCE
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
def test_ctrl_c_saves_the_running_trials_and_the_same_command_continues(tmp_path: Path) -> None:
    """Before it a rank is killed: its trial restarts from its checkpoint, and nobody else notices."""
    settings = search_of(space=RATES, epochs=30, shared=FREQUENT, algorithm="random", trials=2)
    search = tmp_path / "s"
    with SearchDriver(tmp_path, settings) as driver:
        assert driver.wait_for(lambda event: isinstance(event, TrialReported) and event.trial == "t001")
        driver.signal_ranks("t001", signal.SIGKILL)  # as the kernel does without memory
        await_restart(trial_folder(search, "t001"))
        epoch = SearchHistory.read(search).trials["t001"].epoch
        assert driver.wait_for(
            lambda event: isinstance(event, TrialReported) and event.trial == "t001" and event.epoch > epoch
        )
        driver.interrupt()
        ended = driver.end()
        driver.wait_for_descendants()
    assert ended.status == ExitStatus.INTERRUPTED, ended.out + ended.err
    assert "Traceback" not in ended.err
    assert f"make tune NAME={search}\n" in ended.out
    history = SearchHistory.read(search)
    assert history.ended is not None
    assert history.ended.status == "interrupted"
    running = {
        name: select(read_all(trial_folder(search, name)), RunEnded)[-1]
        for name, trial in history.trials.items()
        if trial.ended is None
    }
    assert running["t001"].status == "interrupted"
    if "t002" in running:  # it went on beside the restart, and may have trained its last step
        assert running["t002"].status == "interrupted" or running["t002"].step == 30 * 21
    with SearchDriver(tmp_path, settings) as driver:
        ended = driver.end()
    assert ended.status == ExitStatus.DONE, ended.out + ended.err
    assert_counted_once(search, trials=2)
    for name, trial in SearchHistory.read(search).trials.items():
        assert [report.epoch for report in trial.reports] == list(range(1, 31))
        steps = [event.step for event in select(read_all(trial_folder(search, name)), Step)]
        assert steps[-1] == 30 * 21
        if name in running and running[name].status == "interrupted":  # it went on in the step after its last one
            assert select(read_all(trial_folder(search, name)), Restored)[-1].step == running[name].step


def await_restart(trial: Path) -> None:
    """Wait until a trial has been restarted."""
    deadline = time.monotonic() + PATIENCE
    while not any("restart 1 of" in event.message for event in select(read_all(trial), Notice)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


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

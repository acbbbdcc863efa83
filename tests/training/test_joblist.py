"""The table of runs: state, progress, newest validation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from observability.runlog import Evaluated, Event, RunEnded, RunLogWriter, RunStarted, Step, TrainingStarted
from tests.observability.sample_run import OBJECTIVE
from tests.training.runs import small_settings
from training.joblist import job_table
from training.rundir import RunDirectory

STARTED = RunStarted(run="r", settings={}, environment={})
READY = TrainingStarted(
    world=2,
    start_step=0,
    total_steps=420,
    steps_per_epoch=42,
    parameters=1,
    train_samples=1,
    dataset_fingerprint="f",
    objective=OBJECTIVE.record(),
)


def step(number: int) -> Step:
    return Step(
        step=number,
        epoch=1,
        loss=1,
        metrics={"accuracy": 0.5},
        gradient_norm=1,
        learning_rate=0.1,
        samples=64,
        seconds=0.01,
    )


def evaluated(split: str, accuracy: float) -> Evaluated:
    return Evaluated(split=split, step=1, epoch=1, loss=1, metrics={"accuracy": accuracy}, samples=10, seconds=0.1)


def make_run(folder: Path, name: str, *events: Event) -> RunDirectory:
    run = RunDirectory(folder / name)
    run.path.mkdir()
    run.write_settings(small_settings())
    with RunLogWriter(run.path) as log:
        for event in events:
            log.write(event)
    return run


def cells(run: RunDirectory) -> list[str]:
    """The cells of a run's line without the time of its last event."""
    return [cell for cell in job_table([run]).splitlines()[1].split("  ") if cell][:-1]


def test_the_metric_is_that_of_the_newest_step_whenever_it_was_measured(tmp_path: Path) -> None:
    late = replace(evaluated("validation", 0.5), step=1, is_asynchronous=True)
    run = make_run(tmp_path, "run", READY, replace(evaluated("validation", 0.75), step=2), late)
    plain = make_run(tmp_path, "plain", READY, evaluated("validation", 0.75))
    assert cells(run)[-1].strip() == cells(plain)[-1].strip() == "accuracy 75.0 %"


def test_a_finished_run_shows_its_steps_and_its_newest_validation(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        "first",
        STARTED,
        READY,
        step(419),
        evaluated("validation", 0.5),
        step(420),
        evaluated("validation", 0.975),
        evaluated("test", 0.1),
        RunEnded(status="done", step=420),
    )
    assert [cell.strip() for cell in cells(run)] == ["first", "done", "420/420", "accuracy 97.5 %"]


def test_a_run_with_a_live_driver_is_running_whatever_its_log_says(tmp_path: Path) -> None:
    run = make_run(tmp_path, "again", STARTED, RunEnded(status="failed", step=0))
    with run.driving():
        assert cells(run)[1].strip() == "running"
    assert cells(run)[1].strip() == "failed"


def test_a_run_without_driver_or_final_event_was_killed(tmp_path: Path) -> None:
    run = make_run(tmp_path, "cut", STARTED, READY, step(7), RunEnded(status="interrupted", step=7), STARTED)
    assert [cell.strip() for cell in cells(run)] == ["cut", "killed", "7/420"]
    assert cells(make_run(tmp_path, "early", STARTED))[2].strip() == "0/?", "it never started to train"

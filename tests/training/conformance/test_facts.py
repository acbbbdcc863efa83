"""Reports in the output of the job, and what a run's log says about a killed rank."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from observability.runlog import Event, RunEnded, RunLogWriter, Step, TrainingStarted, WorkersFailed
from training.conformance.facts import ObjectFacts, PartReport, collected, read_line, write_line
from training.conformance.run_facts import training_facts
from training.conformance.victim import KILLED_FILE
from training.rundir import RunDirectory

FACTS = ObjectFacts(bucket="b", written_sha256="0" * 64, read_sha256="1" * 64)


def test_a_report_survives_the_log() -> None:
    done = PartReport(part="objects", seconds=1.5, facts=FACTS)
    failed = PartReport(part="fabric", seconds=0.5, error="PlatformError: two\nlines of 日本")
    lines = ["training …", write_line(done), "conformance: not JSON", write_line(failed), "  done"]
    assert all("\n" not in line for line in lines)
    assert collected(lines).parts == {"objects": done, "fabric": failed}


def test_the_newest_report_of_a_part_holds() -> None:
    """A lost submitter's next pod prints the log again, and a job that is retried runs all parts again."""
    again = PartReport(part="objects", seconds=2.0, facts=FACTS)
    assert collected([write_line(PartReport(part="objects", seconds=1.0, error="x")), write_line(again)]).parts == {
        "objects": again
    }


def test_a_report_of_another_version_is_no_report() -> None:
    assert read_line('conformance: {"part":"objects","seconds":1,"colour":"red"}') is None
    assert read_line("step 3/120") is None


def started(step: int) -> TrainingStarted:
    return TrainingStarted(
        world=2,
        start_step=step,
        total_steps=20,
        steps_per_epoch=10,
        parameters=1,
        train_samples=640,
        dataset_fingerprint="f",
    )


def step(number: int, loss: float) -> Step:
    return Step(step=number, epoch=1, loss=loss, gradient_norm=1, learning_rate=1, samples=64, seconds=1)


def run_with(folder: Path, *events: Event) -> RunDirectory:
    with RunLogWriter(folder) as log:
        log.write(*events)
    return RunDirectory(folder)


def test_a_run_whose_rank_was_killed_has_its_starts_and_losses(tmp_path: Path) -> None:
    (tmp_path / KILLED_FILE).write_text(json.dumps({"rank": 1}))
    before = [step(number, 2.0) for number in range(1, 13)]
    after = [step(number, 1.0 if number < 16 else 0.5) for number in range(11, 21)]
    failed = WorkersFailed(attempt=0, reason="rank 1 was killed", restarts=True)
    ended = RunEnded(status="done", step=20)
    facts = training_facts(run_with(tmp_path, started(0), *before, failed, started(10), *after, ended))
    assert (facts.starts, facts.killed_rank, facts.status, facts.steps) == ((0, 10), 1, "done", 20)
    assert (facts.first_loss, facts.resumed_loss, facts.last_loss) == (2.0, 1.0, 0.5)


def test_a_run_without_a_restart_has_no_loss_after_it(tmp_path: Path) -> None:
    facts = training_facts(run_with(tmp_path, started(0), step(1, 2.0)))
    assert (facts.resumed_loss, facts.killed_rank, facts.status) == (None, None, "")


def test_a_run_that_made_no_step_says_why(tmp_path: Path) -> None:
    ended = RunEnded(status="failed", step=0, message="no space left")
    with pytest.raises(ValueError, match="no space left"):
        training_facts(run_with(tmp_path, ended))

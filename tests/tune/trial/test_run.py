"""Trials from evaluation to evaluation, and the checkpoints that they copy: real training in a thread, held at its gate."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from observability.runlog import Evaluated, Restored, RunEnded, read_all, select
from tests.training.runs import run_alone, steps_of
from tests.tune.trial.gated import EPOCHS, GatedAlone, trial_of, trial_settings
from tests.waiting import wait_until
from training.checkpoint.manifest import MANIFEST_FILE, MODEL_FILE, Manifest
from training.checkpoint.store import committed_steps, folder_name, verify_run
from training.errors import PlatformError
from training.rundir import RunDirectory
from tune.events import TrialExploited
from tune.trial.checkpoints import Donation, complete, donate, inherit, lost_donation
from tune.trial.run import Report


def to_its_end(settings_of: Path, launcher: GatedAlone, *, epoch: int = 0) -> list[Report]:
    """All reports of a trial from an epoch on."""
    trial = trial_of(trial_settings(settings_of), launcher, epoch=epoch)
    reports = [trial.advance()]
    while not reports[-1].is_last:
        reports.append(trial.advance())
    return reports


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Hash of the weights of the same run without gate and interruption."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    return run_alone(trial_settings(folder), folder / "run").weights_sha256


def test_a_trial_reports_each_evaluation_and_ends_in_the_weights_of_a_run(tmp_path: Path, uninterrupted: str) -> None:
    launcher = GatedAlone()
    reports = to_its_end(tmp_path, launcher)
    assert [report.epoch for report in reports] == [1, 2, 3, 4]
    assert launcher.launches == 1
    logged = [event for event in select(read_all(tmp_path / "t001"), Evaluated) if event.split == "validation"]
    assert [report.metrics["accuracy"] for report in reports] == [event.metrics["accuracy"] for event in logged]
    seconds = [report.worker_seconds for report in reports]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0
    assert [report.is_last for report in reports] == [False, False, False, True]
    assert reports[-1].weights_sha256 == uninterrupted


def test_nothing_is_trained_beyond_the_gate(tmp_path: Path) -> None:
    trial = trial_of(trial_settings(tmp_path), GatedAlone())
    first = trial.advance()
    assert {step.epoch for step in steps_of(tmp_path / "t001")} == {1}
    trial.stop()
    assert steps_of(tmp_path / "t001")[-1].step == first.step
    assert select(read_all(tmp_path / "t001"), RunEnded)[-1].status == "interrupted"


def test_an_evaluation_that_the_search_has_not_heard_of_is_reported_when_the_trial_continues(
    tmp_path: Path, uninterrupted: str
) -> None:
    """The driver was killed or stopped after it, and the trial continues from the checkpoint behind it."""
    launcher = GatedAlone()
    trial = trial_of(trial_settings(tmp_path), launcher)
    first = trial.advance()
    launcher.allow(3)
    wait_until(lambda: any(event.epoch == 3 for event in select(read_all(tmp_path / "t001"), Evaluated)))
    trial.stop()
    reports = to_its_end(tmp_path, GatedAlone(), epoch=first.epoch)
    assert [report.epoch for report in reports] == [2, 3, 4]
    assert [report.is_last for report in reports] == [False, False, True]
    seconds = [first.worker_seconds, *(report.worker_seconds for report in reports)]
    assert seconds == sorted(seconds)
    assert len(steps_of(tmp_path / "t001")) == len({step.step for step in steps_of(tmp_path / "t001")})
    assert reports[-1].weights_sha256 == uninterrupted


def test_a_failed_trial_fails_again_after_its_evaluations(tmp_path: Path) -> None:
    launcher = GatedAlone()
    known = trial_of(trial_settings(tmp_path), launcher)
    first = known.advance()
    known.stop()
    trial = trial_of(trial_settings(tmp_path), launcher, recorded=[first], failure="rank 0 was killed")
    assert trial.advance() == first
    with pytest.raises(PlatformError, match="rank 0 was killed"):
        trial.advance()
    assert launcher.launches == 1


def test_evaluations_that_are_further_apart_are_waited_for(tmp_path: Path) -> None:
    trial = trial_of(trial_settings(tmp_path, loop={"epochs": 5, "evaluate_every": 2}), GatedAlone())
    reports = [trial.advance(), trial.advance(), trial.advance()]
    assert [report.epoch for report in reports] == [2, 4, 5]
    assert reports[-1].is_last


def test_a_trial_that_waits_for_too_long_saves_and_starts_again(tmp_path: Path, uninterrupted: str) -> None:
    launcher = GatedAlone(patience=0.0)
    reports = to_its_end(tmp_path, launcher)
    assert [report.epoch for report in reports] == list(range(1, EPOCHS + 1))
    assert launcher.launches > 1
    assert reports[-1].weights_sha256 == uninterrupted


def test_recorded_evaluations_come_first_and_an_end_that_was_not_recorded_is_reported(tmp_path: Path) -> None:
    recorded = to_its_end(tmp_path, GatedAlone())
    launcher = GatedAlone()
    trial = trial_of(trial_settings(tmp_path), launcher, recorded=recorded)
    assert [trial.advance() for _ in recorded] == recorded
    assert launcher.launches == 0
    again = trial_of(trial_settings(tmp_path), GatedAlone(), epoch=EPOCHS - 1).advance()
    assert (again.epoch, again.is_last, again.metrics) == (EPOCHS, True, recorded[-1].metrics)
    assert again.weights_sha256 == recorded[-1].weights_sha256


def test_a_trial_takes_its_run_over_from_a_driver_that_still_waits(tmp_path: Path) -> None:
    earlier = trial_of(trial_settings(tmp_path), GatedAlone())
    earlier.advance()
    assert [report.epoch for report in to_its_end(tmp_path, GatedAlone(), epoch=1)] == [2, 3, 4]
    earlier.stop()


def test_a_trial_that_fails_says_why(tmp_path: Path) -> None:
    trial = trial_of(trial_settings(tmp_path, optimizer={"name": "sgd", "learning_rate": 1e30}), GatedAlone())
    with pytest.raises(PlatformError, match="not finite"):
        trial.advance()
    assert select(read_all(tmp_path / "t001"), RunEnded)[-1].status == "failed"


@pytest.fixture(scope="module")
def donor(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, Donation]:
    """A trial of two epochs, stopped, and its donated checkpoint."""
    root = tmp_path_factory.mktemp("trials")
    trial = trial_of(trial_settings(root), GatedAlone())
    trial.advance()
    report = trial.advance()
    run = RunDirectory(root / "t001")
    donation = donate(run, epoch=report.epoch, step=report.step)
    trial.stop()
    return run, donation


def test_a_donated_checkpoint_outlives_retention(donor: tuple[RunDirectory, Donation]) -> None:
    run, donation = donor
    finished = trial_of(trial_settings(run.path.parent), GatedAlone(), epoch=2)
    while not finished.advance().is_last:
        pass
    assert donation.step not in committed_steps(run.checkpoints)
    manifest = Manifest.decode((Path(donation.folder) / MANIFEST_FILE).read_bytes())
    assert manifest.step == donation.step
    assert {file.name: file.sha256 for file in manifest.files}[MODEL_FILE] == donation.weights_sha256


def test_a_trial_continues_from_the_donors_weights_with_its_own_settings(donor: tuple[RunDirectory, Donation]) -> None:
    run, donation = donor
    root = run.path.parent
    settings = trial_settings(root, "t002", optimizer={"learning_rate": 1e-4})
    clone = trial_of(settings, GatedAlone())
    clone.advance()
    clone.stop()
    run = RunDirectory(root / "t002")
    inherit(run, donation)
    assert committed_steps(run.checkpoints) == [donation.step]
    assert [problems for _, problems in verify_run(run.path)] == [[]]
    report = trial_of(settings, GatedAlone(), epoch=donation.epoch).advance()
    assert report.epoch == donation.epoch + 1
    assert select(read_all(run.path), Restored)[-1].step == donation.step


def test_a_copy_that_was_decided_but_not_made_is_known_until_the_trial_has_begun_with_it(
    donor: tuple[RunDirectory, Donation],
) -> None:
    run, donation = donor
    root = run.path.parent
    exploit = TrialExploited(
        trial="t003",
        donor="t001",
        epoch=donation.epoch,
        step=donation.step,
        weights_sha256=donation.weights_sha256,
        values={},
    )
    run = RunDirectory(root / "t003")
    assert lost_donation(run, []) is None
    assert lost_donation(run, [exploit]) == donation
    clone = trial_of(trial_settings(root, "t003"), GatedAlone(), epoch=donation.epoch)
    inherit(run, donation)
    assert lost_donation(run, [exploit]) == donation
    clone.advance()
    clone.stop()
    assert lost_donation(run, [exploit]) is None
    again = replace(exploit, time=time.time())  # after two bad epochs, the same checkpoint once more
    assert lost_donation(run, [exploit, again]) == donation


def test_a_copy_that_was_cut_off_is_completed(donor: tuple[RunDirectory, Donation]) -> None:
    run, donation = donor
    run = RunDirectory(run.path.parent / "t004")
    run.checkpoints.mkdir(parents=True)
    donation.write(run.path / "inherits.json")
    (run.checkpoints / ".step-00000001").mkdir()
    complete(run)
    complete(run)
    assert committed_steps(run.checkpoints) == [donation.step]
    assert not (run.path / "inherits.json").exists()


def test_few_donations_are_kept(tmp_path: Path) -> None:
    trial = trial_of(trial_settings(tmp_path), GatedAlone())
    run = RunDirectory(tmp_path / "t001")
    steps = []
    for _ in range(4):
        report = trial.advance()
        steps.append(donate(run, epoch=report.epoch, step=report.step).step)
    kept = sorted(path.name for path in (run.path / "donated").iterdir())
    assert kept == [folder_name(step) for step in steps[-2:]]
    with pytest.raises(TimeoutError, match="step-00999999 was not committed within 0 s"):
        donate(run, epoch=9, step=999_999, patience=0.0)

"""Checkpoints that trials copy from each other: real runs, one continues from the other's weights."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from observability.runlog import Restored, read_all, select
from tests.tune.trial.gated import GatedAlone, trial_of, trial_settings
from training.checkpoint.manifest import MANIFEST_FILE, MODEL_FILE, Manifest
from training.checkpoint.store import committed_steps, folder_name, verify_run
from training.rundir import RunDirectory
from tune.events import TrialExploited
from tune.trial.checkpoints import Donation, complete, donate, inherit, lost_donation


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

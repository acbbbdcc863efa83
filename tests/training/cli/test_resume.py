"""`resume` and `verify` on runs that are intact, damaged, or resumed with other settings."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from observability.runlog import Restored, RunEnded, RunStarted, TrainingStarted, read_all, select
from tests.training.runs import run_alone, small_settings
from training.cli import main
from training.config.schema import TrainingSettings
from training.rundir import RunDirectory

STEPS = 12


def up_to(step: int, root: Path) -> TrainingSettings:
    """Settings of a run that ends after a step and saves only then."""
    return small_settings(
        run={"directory": root},
        loop={"max_steps": step},
        schedule={"name": "constant"},
        checkpoint={"every_steps": 1000},
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs that holds one, `run`, with checkpoints of steps 10 and 12."""
    root = tmp_path_factory.mktemp("trained")
    run = RunDirectory(root / "run")
    for step in (10, STEPS):
        run_alone(up_to(step, root), run.path)
    run.write_settings(up_to(STEPS, root))
    return root


@pytest.fixture
def root(trained: Path, tmp_path: Path) -> Path:
    copied = tmp_path / "runs"
    shutil.copytree(trained, copied)
    return copied


def newest(root: Path) -> Path:
    return root / "run" / "checkpoints" / f"step-{STEPS:08d}" / "model.safetensors"


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def resume(root: Path, *changes: str) -> int:
    """Resume the run of a copied folder, whose settings name the original."""
    return main(["resume", "run", "--root", str(root), *setting(*changes)])


def setting(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


def contents(folder: Path) -> dict[Path, bytes]:
    return {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.extended
def test_the_copy_of_a_run_is_resumed_in_its_own_folder(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "backups" / "copy"
    shutil.copytree(root / "run", copy)
    before = contents(root)
    assert main(["resume", str(copy), "--root", str(root), *setting("loop.max_steps=15")]) == 0
    assert contents(root) == before
    assert sorted(path.name for path in copy.parent.iterdir()) == ["copy"]
    assert select(read_all(copy), Restored)[-1].step == STEPS
    assert select(read_all(copy), RunStarted)[-1].run == "copy"
    run = RunDirectory(copy).settings().run
    assert (run.directory, run.name) == (copy.parent, "copy")
    expected = run_alone(up_to(15, root), tmp_path / "reference").weights_sha256
    assert select(read_all(copy), RunEnded)[-1].weights_sha256 == expected


def test_a_folder_is_found_from_any_place_by_its_path_even_if_a_run_has_its_name(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(root / "run")
    run, same_name = root / "run", tmp_path / "run"
    shutil.copytree(run, same_name)
    for place, given, found in (
        ("..", "runs/run", run),
        (".", "./run", run),
        ("run/logs", "..", run),
        ("..", "./run", same_name),
        (".", str(tmp_path / "link"), run),
    ):
        monkeypatch.chdir(root / place)
        opened = RunDirectory.open(given, root=root)
        assert (opened.name, opened.path.resolve()) == ("run", found), given


def test_a_run_is_not_resumed_under_another_name_or_elsewhere(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for change in ("run.name=other", "run.directory=/nowhere"):
        assert resume(root, change) == 2
        error = capfd.readouterr().err
        assert f"--set {change}" in error
        assert f"train --config {root / 'run' / 'settings.yaml'} --name NAME" in error
    (root / "run").rename(root / "My run")
    assert main(["resume", str(root / "My run")]) == 2
    error = capfd.readouterr().err
    for part in ("My run", "run.name", "rename the folder"):
        assert part in error


@pytest.mark.extended
def test_a_run_is_not_resumed_as_another_and_keeps_its_settings(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory(root / "run")
    before = run.settings()
    another_dataset = ("data.dataset=synthetic", "data.options.kind=images", "data.options.samples=640")
    assert resume(root, "model.name=mlp", "run.seed=1", "loop.global_batch=32", *another_dataset) == 3
    assert run.settings() == before
    error = capfd.readouterr().err
    parts = ("dataset_fingerprint: saved ", "global_batch: saved 64, wanted 32")
    for part in (*parts, "model: saved simple_cnn, wanted mlp", "seed: saved 0, wanted 1", "remedy:"):
        assert part in error
    assert "Traceback" not in error


def test_a_damaged_newest_checkpoint_is_skipped_with_a_message(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cut_short(newest(root))
    assert resume(root, "loop.max_steps=15") == 0
    assert "checkpoint failed verification: step-00000012: model.safetensors has" in capfd.readouterr().out
    events = read_all(root / "run")
    assert [event.step for event in select(events, Restored)] == [10, 10]
    expected = run_alone(up_to(15, root), root / "reference").weights_sha256
    assert select(events, RunEnded)[-1].weights_sha256 == expected


@pytest.mark.extended
def test_a_run_without_a_good_checkpoint_is_not_restarted(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for path in root.glob("run/checkpoints/*/model.safetensors"):
        cut_short(path)
    assert resume(root) == 1
    assert "none of the 2 checkpoints" in capfd.readouterr().err


def remove_manifests(run: Path) -> None:
    for path in run.glob("checkpoints/*/manifest.json"):
        path.unlink()


def test_a_run_without_checkpoints_is_refused_and_keeps_its_files(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = root / "run"
    parts = ["step 12", "manifest.json", "from a backup", f"--config {run / 'settings.yaml'} --name"]
    unfinished = ["step-00000010/model.safetensors", "step-00000012/model.safetensors"]
    for lose, named in (
        (remove_manifests, [*parts, *unfinished]),
        (lambda run: shutil.rmtree(run / "checkpoints"), parts),
    ):
        lose(run)
        (run / "driver.pid").unlink(missing_ok=True)
        before = contents(run)
        assert resume(root, "loop.max_steps=15") == 3
        error = capfd.readouterr().err
        for part in (f"{run / 'checkpoints'}", *named):
            assert part in error
        (run / "driver.pid").unlink(missing_ok=True)
        assert contents(run) == before


@pytest.mark.extended
def test_a_run_that_was_killed_in_its_first_save_starts_anew(root: Path) -> None:
    remove_manifests(root / "run")
    (root / "run" / "events.jsonl").unlink()
    assert resume(root) == 0
    assert [event.start_step for event in select(read_all(root / "run"), TrainingStarted)] == [0]


def test_a_run_with_a_checkpoint_is_refused_under_resume_never(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert resume(root, "checkpoint.resume=never") == 3
    assert "checkpoint of step 12" in capfd.readouterr().err


def test_verify_names_each_checkpoint_and_what_is_damaged(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def verified() -> tuple[int, list[str]]:
        status = main(["verify", "run", "--root", str(root)])
        return status, [line.partition(": ")[2] for line in capsys.readouterr().out.splitlines()]

    assert verified() == (0, ["good", "good"])
    path = newest(root)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert verified() == (1, ["good", "model.safetensors does not match its sha256"])
    shutil.rmtree(root / "run" / "checkpoints")
    assert main(["verify", "run", "--root", str(root)]) == 1
    assert "no checkpoint" in capsys.readouterr().out

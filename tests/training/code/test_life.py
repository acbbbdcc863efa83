"""The life of runs with code of their own: real drivers and ranks, killed and resumed while the user edits the folder."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from observability.runlog import Notice, Restored, RunEnded, RunStarted, TrainingStarted, read_all, select
from tests.engines import report_table
from tests.training.code.projects import LOSSES, NETS, OWN, settings, uninterrupted, write
from tests.training.launch.driver import Driver, arguments_for, is_commit
from training.checkpoint.manifest import MANIFEST_FILE, Manifest
from training.cli import main
from training.code import kept
from training.code.archive import pack
from training.config.load import render
from training.config.schema import TrainingSettings
from training.rundir import RunDirectory

pytestmark = pytest.mark.extended

EPOCHS = 24

WITHOUT_DROPOUT = OWN | {"own_project/nets.py": NETS.replace("dropout=0.3", "dropout=0.0")}
OTHER_LOSS = OWN | {"own_losses.py": LOSSES.replace("error.abs()", "error.square()")}


def weights(run: Path) -> str:
    return select(read_all(run), RunEnded)[-1].weights_sha256


def train(chosen: TrainingSettings, root: Path, code: Path) -> Driver:
    arguments = arguments_for(chosen, root)
    return Driver(*arguments, "--code", str(code), run=root / "runs" / "run", environment={"RAY_AUTH_MODE": "token"})


def resume(root: Path) -> Driver:
    run = root / "runs" / "run"
    return Driver("resume", str(run), run=run, environment={"RAY_AUTH_MODE": "token"})


def kill_a_rank(driver: Driver) -> None:
    """Kill rank 1 itself, not one of its loader workers, which inherit its environment."""
    for one in driver.descendants():
        parent = one.parent()
        if one.environ().get("RANK") == "1" and parent is not None and "RANK" not in parent.environ():
            os.kill(one.pid, signal.SIGKILL)
            return
    raise AssertionError("no rank 1")


def test_restarted_and_resumed_ranks_import_what_the_run_has_kept(tmp_path: Path) -> None:
    # Over 20 CPU seconds: a restart, a resume and a change of the code each need processes that import anew.
    chosen = settings(
        epochs=EPOCHS,
        scale={"launcher": "torchrun", "workers": 2},
        data={"loader_workers": 1},
        checkpoint={"every_steps": 40},
    )
    code = write(tmp_path / "mine", OWN)
    with train(chosen, tmp_path, code) as driver:
        assert driver.wait_for(is_commit), driver.end()
        write(code, WITHOUT_DROPOUT)
        kill_a_rank(driver)
        assert driver.wait_for(lambda event: isinstance(event, Restored)), driver.end()
        assert driver.wait_for(is_commit), driver.end()
        driver.kill()
        driver.wait_for_descendants()
    shutil.rmtree(code)
    with resume(tmp_path) as driver:
        ended = driver.end()
        assert ended.status == 0, ended.err
    report_table.ran("torchrun")
    run = tmp_path / "runs" / "run"
    assert [event.step > 0 for event in select(read_all(run), Restored)] == [True, True]
    assert weights(run) == uninterrupted(chosen, tmp_path / "reference")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `mine`, and with a run of it in `runs`."""
    root = tmp_path_factory.mktemp("trained")
    write(root / "mine", OWN)
    configured = settings(run={"directory": root / "runs", "name": "run"}, schedule={"name": "constant"})
    (root / "mine" / "train.yaml").write_text(render(configured), encoding="utf-8")
    assert main(["train", "--code", str(root / "mine")]) == 0
    return root


@pytest.fixture
def root(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    shutil.copytree(trained, tmp_path / "copy")
    return tmp_path / "copy"


def longer(root: Path, *arguments: str) -> int:
    """Resume the run for two more epochs."""
    return main(["resume", str(root / "runs" / "run"), "--set", "loop.epochs=8", *arguments])


def test_a_kept_archive_repeats_the_run(root: Path) -> None:
    run = root / "runs" / "run"
    shutil.rmtree(root / "mine")
    (archive,) = (run / "code").glob("*.tar.gz")
    again = ["train", "--code", str(archive), "--config", str(run / "settings.yaml"), "--name", "again"]
    assert main([*again, "--set", f"run.directory={root}"]) == 0
    assert weights(root / "again") == weights(run)
    assert (root / "again" / "code" / archive.name).read_bytes() == archive.read_bytes()


def test_a_resume_with_other_code_is_recorded_everywhere(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = root / "runs" / "run"
    write(root / "mine", OTHER_LOSS)
    before, after = kept.current_identity(run), pack(root / "mine").identity
    assert before is not None
    assert longer(root, "--code", str(root / "mine")) == 0
    assert f"the run's code changes from {before.describe()} to {after.describe()}" in capfd.readouterr().out
    events = read_all(run)
    noted = f"resumed with a change: code: saved {before.describe()}, wanted {after.describe()}"
    assert noted in [event.message for event in select(events, Notice)]
    assert [event.environment["code"]["sha256"] for event in select(events, RunStarted)] == [
        before.sha256,
        after.sha256,
    ]
    newest = max((run / "checkpoints").glob("*/")) / MANIFEST_FILE
    assert Manifest.decode(newest.read_bytes()).identity.code == after.dump()
    assert kept.current_identity(run) == after
    assert len(list((run / "code").glob("*.tar.gz"))) == 2


def test_code_that_the_ranks_refuse_does_not_replace_the_run_s(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = root / "runs" / "run"
    before = kept.current_identity(run)
    write(root / "mine", OWN | {"own_project/nets.py": "import no_such_package\n" + OWN["own_project/nets.py"]})
    assert longer(root, "--code", str(root / "mine")) == 1
    error = capfd.readouterr().err
    assert error.startswith(
        f'error: Traceback (most recent call last):\n  File "{root / "mine" / "own_project" / "nets.py"}", line 1'
    )
    assert kept.current_identity(run) == before
    # Its name is enough to train it on, with what it has kept.
    shutil.rmtree(root / "mine")
    assert main(["train", "--name", "run", "--set", f"run.directory={root / 'runs'}", "--set", "loop.epochs=8"]) == 0
    assert select(read_all(run), TrainingStarted)[-1].start_step == 60


def test_a_run_without_code_gains_some(root: Path, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "runs" / "plain")
    configured = settings(
        epochs=1,
        model={"name": "mlp", "options": {"hidden": [8]}},
        data={"dataset": "diabetes"},
        objective={"name": "regression"},
        run={"directory": tmp_path / "runs", "name": "plain"},
    )
    (tmp_path / "plain.yaml").write_text(render(configured), encoding="utf-8")
    assert main(["train", "--config", str(tmp_path / "plain.yaml")]) == 0
    assert main(["resume", str(run.path), "--set", "loop.epochs=2", "--code", str(root / "mine")]) == 0
    notices = [event.message for event in select(read_all(run.path), Notice)]
    assert [one for one in notices if "change: code: saved none, wanted " in one]


def test_lost_damaged_and_edited_code_is_named(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = root / "runs" / "run"
    (archive,) = (run / "code").glob("*.tar.gz")
    copy = archive.with_name(archive.name.removesuffix(".tar.gz"))

    def assert_refused(said: str) -> None:
        assert longer(root) == 1
        assert said in capfd.readouterr().err

    (copy / "own_losses.py").chmod(0o644)
    (copy / "own_losses.py").write_text("changed = True\n")
    assert_refused("own_losses.py differ from the run's code archive")
    shutil.rmtree(copy)
    archive.write_bytes(archive.read_bytes()[:40])
    assert_refused("recorded is")
    archive.unlink()
    assert_refused(f"{archive}: the archive of the code that run run was trained with is gone")
    (run / "code.json").write_text("{")
    assert_refused(f"{run / 'code.json'} does not name the run's code")

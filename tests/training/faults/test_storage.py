"""A run whose disk is full, or whose folder is deleted, moved or replaced, ends with an error that says so; with space it resumes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from observability.runlog import RunEnded, read_all, select
from tests.engines.small_disk import small_disk
from tests.training.launch.driver import is_commit, train
from tests.training.runs import run_alone, small_settings
from training.checkpoint.store import FOLDER
from training.cli import main

CHOSEN = small_settings(loop={"epochs": 25}, schedule={"name": "constant"})


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 MiB, slightly more than a run needs to start."""
    with small_disk(tmp_path / "disk", size="300m") as directory:
        yield directory


def fill(path: Path, *, leaving: int) -> None:
    """Write a file that leaves that many bytes free."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(2**20))
        except OSError:
            file.truncate(file.tell() - leaving)


def test_a_checkpoint_that_does_not_fit_ends_the_run_which_resumes_with_space(disk: Path, tmp_path: Path) -> None:
    with train(CHOSEN, disk) as driver:
        assert driver.wait_for(is_commit)
        fill(disk / "ballast", leaving=160 * 1024)
        ended = driver.end()
    assert ended.status == 1
    assert re.search(r"could not be written to .*: it needs \d+ bytes and \d+ are free", ended.err)
    assert "remedy: free space there" in ended.err
    assert "Traceback" not in ended.err
    runs = disk / "runs"
    assert main(["verify", "run", "--root", str(runs)]) == 0
    (disk / "ballast").unlink()
    assert main(["resume", "run", "--root", str(runs)]) == 0
    uninterrupted = run_alone(CHOSEN, tmp_path / "uninterrupted").weights_sha256
    assert select(read_all(runs / "run"), RunEnded)[-1].weights_sha256 == uninterrupted


def delete(run: Path) -> None:
    shutil.rmtree(run, ignore_errors=True)  # the ranks may write files meanwhile


def move(run: Path) -> None:
    run.rename(run.with_name("moved"))


def replace(run: Path) -> None:
    move(run)
    # Without checkpoints, whose writer may have made the folder again and renames files in it.
    ignore = shutil.ignore_patterns(FOLDER)
    shutil.copytree(run.with_name("moved"), run, ignore=ignore, dirs_exist_ok=True)


@pytest.mark.parametrize(("launcher", "lose"), [("plain", replace), ("plain", delete), ("torchrun", move)])
def test_a_run_without_its_folder_fails_with_no_summary(
    tmp_path: Path, launcher: str, lose: Callable[[Path], None]
) -> None:
    chosen = small_settings(loop={"epochs": 60}, schedule={"name": "constant"}, scale={"launcher": launcher})
    with train(chosen, tmp_path) as driver:
        assert driver.wait_for(is_commit)
        lose(driver.run)
        ended = driver.end()
        driver.wait_for_descendants()
    assert ended.status == 1, ended.out
    assert ended.err.startswith(f"error: {driver.run}: the run's folder was deleted, moved or replaced")
    assert "remedy: " in ended.err
    assert "Traceback" not in ended.err
    assert "report" not in ended.out
    assert "done after" not in ended.out

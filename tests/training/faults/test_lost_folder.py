"""A run whose folder is deleted, moved or replaced while it trains ends with an error that names the folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.training.launch.driver import is_commit, train
from tests.training.runs import small_settings
from training.checkpoint.store import FOLDER


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

"""A full disk ends a run with a clear error; its checkpoints stay valid, and it resumes once there is space."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from observability.runlog import RunEnded, read_all, select
from tests.engines.small_disk import small_disk
from tests.training.launch.driver import Ended, is_commit, train
from tests.training.runs import run_alone, small_settings
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


def train_until_full(disk: Path, *, leaving: int) -> Ended:
    """Fill the disk after the first committed checkpoint, and wait for the run to end."""
    with train(CHOSEN, disk) as driver:
        assert driver.wait_for(is_commit)
        fill(disk / "ballast", leaving=leaving)
        return driver.end()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The weights of a run without a full disk."""
    return run_alone(CHOSEN, tmp_path_factory.mktemp("uninterrupted")).weights_sha256


def assert_resumes(disk: Path, uninterrupted: str) -> None:
    """With space again, the run resumes from its checkpoint and ends in the same weights."""
    runs = disk / "runs"
    assert main(["verify", "run", "--root", str(runs)]) == 0
    (disk / "ballast").unlink()
    assert main(["resume", "run", "--root", str(runs)]) == 0
    assert select(read_all(runs / "run"), RunEnded)[-1].weights_sha256 == uninterrupted


def test_a_checkpoint_that_does_not_fit_ends_the_run_with_needed_and_free_bytes(disk: Path, uninterrupted: str) -> None:
    ended = train_until_full(disk, leaving=160 * 1024)
    assert ended.status == 1
    assert re.search(r"could not be written to .*: it needs \d+ bytes and \d+ are free", ended.err)
    assert "remedy: free space there" in ended.err
    assert "Traceback" not in ended.err
    assert_resumes(disk, uninterrupted)


def test_a_log_without_space_ends_the_run_with_a_remedy(disk: Path, uninterrupted: str) -> None:
    ended = train_until_full(disk, leaving=0)
    assert ended.status == 1
    # Either the log or the next checkpoint may fail first.
    log, checkpoint = "No space left on device", "could not be written to"
    assert log in ended.err or checkpoint in ended.err
    assert (
        f"make resume NAME={disk / 'runs' / 'run'}" if log in ended.err else "remedy: free space there"
    ) in ended.err
    assert "Traceback" not in ended.err
    assert_resumes(disk, uninterrupted)

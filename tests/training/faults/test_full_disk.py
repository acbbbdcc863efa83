"""A disk that fills up under a run: it says so, what it has saved stays good, and it goes on where there is room again."""

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
    """A file system of 300 MiB, a little more than a run needs to start."""
    with small_disk(tmp_path / "disk", size="300m") as directory:
        yield directory


def fill(path: Path, *, leaving: int) -> None:
    """Put a file on the disk that leaves so many bytes free."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(2**20))
        except OSError:
            file.truncate(file.tell() - leaving)


def train_until_full(disk: Path, *, leaving: int) -> Ended:
    """Fill the disk once the run has committed a checkpoint, and wait for the run's end."""
    with train(CHOSEN, disk) as driver:
        assert driver.wait_for(is_commit)
        fill(disk / "ballast", leaving=leaving)
        return driver.end()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The weights that the run has to end in."""
    return run_alone(CHOSEN, tmp_path_factory.mktemp("undisturbed")).weights_sha256


def assert_goes_on(disk: Path, undisturbed: str) -> None:
    """With room again, the run goes on from what it had saved to the weights it would have had."""
    runs = disk / "runs"
    assert main(["verify", "run", "--root", str(runs)]) == 0
    (disk / "ballast").unlink()
    assert main(["resume", "run", "--root", str(runs)]) == 0
    assert select(read_all(runs / "run"), RunEnded)[-1].weights_sha256 == undisturbed


def test_a_checkpoint_that_finds_no_room_ends_the_run_with_what_it_needs_and_what_is_free(
    disk: Path, undisturbed: str
) -> None:
    ended = train_until_full(disk, leaving=160 * 1024)
    assert ended.status == 1
    assert re.search(r"could not be written to .*: it needs \d+ bytes and \d+ are free", ended.err)
    assert "remedy: free space there" in ended.err
    assert "Traceback" not in ended.err
    assert_goes_on(disk, undisturbed)


def test_a_disk_without_room_for_the_log_ends_the_run_with_what_to_do(disk: Path, undisturbed: str) -> None:
    ended = train_until_full(disk, leaving=0)
    assert ended.status == 1
    # Which of the two meets it first is chance: the log, or the next checkpoint.
    log, checkpoint = "No space left on device", "could not be written to"
    assert log in ended.err or checkpoint in ended.err
    assert ("make resume NAME=run" if log in ended.err else "remedy: free space there") in ended.err
    assert "Traceback" not in ended.err
    assert_goes_on(disk, undisturbed)

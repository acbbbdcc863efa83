"""A full disk ends a run with a clear error; its checkpoints stay valid, and it resumes once there is space."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from observability.runlog import RunEnded, read_all, select
from tests.engines.small_disk import small_disk
from tests.training.launch.driver import is_commit, train
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


def test_a_checkpoint_that_does_not_fit_ends_the_run_with_needed_and_free_bytes_and_it_resumes_with_space(
    disk: Path, tmp_path: Path
) -> None:
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

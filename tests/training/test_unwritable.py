"""What is said about folders that cannot be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from tests.engines.small_disk import small_disk
from training.unwritable import explain, probe

FOLDER = Path("runs/one")


def of(number: int, *file: str) -> OSError:
    return OSError(number, os.strerror(number), *file)


def explained(error: BaseException) -> str:
    return str(explain(error, FOLDER, owner="run", then="make resume resumes it"))


def test_a_full_disk_is_named_with_the_file_and_the_remedy() -> None:
    assert explained(of(errno.ENOSPC, "runs/one/events.jsonl")) == (
        "runs/one/events.jsonl: No space left on device: the run's folder cannot be written\n"
        "  remedy: free disk space; make resume resumes it"
    )
    assert explained(of(errno.EDQUOT)).startswith("runs/one: ")
    assert "make the folder writable" in explained(of(errno.EROFS))


def test_a_full_disk_is_found_behind_other_errors() -> None:
    def fail(number: int) -> BaseException:
        try:
            try:
                raise of(number)
            except OSError as error:
                raise RuntimeError("a library's own") from error
        except RuntimeError:
            try:
                raise ValueError("while it was handled")
            except ValueError as error:
                return error

    assert "No space left" in explained(fail(errno.ENOSPC))
    assert explained(fail(errno.EPERM)) == "None", "a library may be forbidden anything"


def test_other_errors_are_not_explained() -> None:
    assert explained(of(errno.ENOENT)) == "None"
    assert explained(ValueError("x")) == "None"


def test_a_probe_finds_a_full_disk_and_leaves_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="128k") as disk:
        assert probe(disk) is None
        assert list(disk.iterdir()) == []
        (disk / "ballast").write_bytes(bytes(124 * 1024))
        found = probe(disk)
        assert found is not None
        assert "No space left" in explained(found)


def test_a_probe_finds_a_lost_folder(tmp_path: Path) -> None:
    found = probe(tmp_path / "gone")
    assert found is not None
    assert found.errno == errno.ENOENT

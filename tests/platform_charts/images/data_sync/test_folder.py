"""Copies from a folder: what a job does with a dataset on the shared file system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from platform_charts.images.data_sync.errors import ChangedError
from platform_charts.images.data_sync.folder import FolderClient
from tests.engines.small_disk import small_disk
from tests.platform_charts.images.data_sync.bucket import run_here


class Folders:
    """A source and a root for copies of it."""

    def __init__(self, parent: Path) -> None:
        self.source, self.root = parent / "source", parent / "root"
        self.source.mkdir()
        self.root.mkdir(exist_ok=True)

    @property
    def copy(self) -> Path:
        return self.root / "x"

    def put(self, files: dict[str, bytes]) -> None:
        """Write files of the source."""
        for name, body in files.items():
            (self.source / name).parent.mkdir(parents=True, exist_ok=True)
            (self.source / name).write_bytes(body)

    def copied(self) -> dict[str, bytes]:
        """Content by relative path."""
        return {str(file.relative_to(self.copy)): file.read_bytes() for file in self.copy.rglob("*") if file.is_file()}

    def arguments(self, *options: str) -> list[str]:
        """Of the program."""
        return [str(self.source), "datasets/x", f"--root={self.root}", *options]

    def run(self, *options: str) -> tuple[int, str]:
        """Exit status and output."""
        return run_here(self.arguments(*options))


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def tree(count: int) -> dict[str, bytes]:
    """Files of different sizes in several folders."""
    return {f"train/{number % 7}/{number:03}.jpg": os.urandom(number * 37) for number in range(count)}


def test_a_folder_is_copied_with_its_links_followed_and_a_second_run_copies_nothing(folders: Folders) -> None:
    files = {**tree(100), "träin/画像 1.jpg": b"image", "empty": b""}
    folders.put(files)
    (folders.source / "link.jpg").symlink_to("träin/画像 1.jpg")
    status, output = folders.run()
    assert (status, folders.copied()) == (0, {**files, "link.jpg": b"image"}), output
    status, output = folders.run()
    assert "103 objects; 103 are there, 0 to copy" in output


def test_what_changed_in_the_source_or_was_damaged_in_the_copy_is_copied_again(folders: Folders) -> None:
    files = tree(20)
    folders.put(files)
    assert folders.run()[0] == 0
    damaged, changed = "train/1/008.jpg", "train/2/009.jpg"
    (folders.copy / damaged).write_bytes(b"damaged")
    folders.put({changed: b"new"})
    status, output = folders.run()
    assert (status, folders.copied()) == (0, {**files, changed: b"new"}), output
    assert "18 are there, 2 to copy" in output


def test_what_is_neither_a_file_nor_a_folder_and_a_loop_of_links_are_refused(folders: Folders) -> None:
    folders.put({"train/a.jpg": b"a"})
    os.mkfifo(folders.source / "pipe")
    status, output = folders.run()
    assert (status, "pipe is neither a file nor a folder" in output) == (3, True), output
    (folders.source / "pipe").unlink()
    (folders.source / "train" / "again").symlink_to(folders.source)
    status, output = folders.run()
    assert (status, "leads back to a folder above it" in output) == (3, True), output


def test_a_file_that_the_disk_did_not_keep_is_copied_again(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    folders.put({"a": b"content"})
    damages = iter([b"damaged"])

    def damage(file: int) -> None:
        os.pwrite(file, next(damages, b""), 0)

    monkeypatch.setattr("platform_charts.images.data_sync.download.os.fsync", damage)
    status, output = folders.run()
    assert status == 0, output
    assert folders.copied() == {"a": b"content"}
    assert next(damages, None) is None


def test_a_copy_that_exceeds_the_limit_beside_others_is_refused_with_both_numbers(folders: Folders) -> None:
    folders.put({"a": bytes(3_000_000)})
    status, output = folders.run(f"--limit={2_000_000}")
    assert status == 3
    assert "the copy needs 3.0 MB (3000000 bytes)" in output
    assert "2.0 MB (2000000 bytes) free" in output
    assert folders.copied() == {}
    other = folders.root / "other"
    other.mkdir()
    (other / "b").write_bytes(bytes(1_500_000))
    assert folders.run(f"--limit={4_000_000}")[0] == 3
    assert folders.run(f"--limit={4_700_000}")[0] == 0


def test_a_full_disk_is_refused_before_anything_is_copied(tmp_path: Path) -> None:
    with small_disk(tmp_path / "root", size="1m"):
        folders = Folders(tmp_path)
        folders.put({"a": bytes(2_000_000)})
        # A process of its own: what it leaves open would keep the file system mounted.
        command = [sys.executable, "-m", "platform_charts.images.data_sync", *folders.arguments()]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (ended.returncode, folders.copied()) == (3, {}), ended.stderr


def test_a_complete_copy_is_reused_without_its_source_and_a_damaged_or_unfinished_one_is_not(folders: Folders) -> None:
    folders.put({"a": b"a"})
    assert folders.run()[0] == 0
    folders.put({"a": b"changed", "b": b"b"})
    status, output = folders.run("--reuse")
    assert (status, folders.copied()) == (0, {"a": b"a"}), output
    (folders.copy / "a").unlink()
    status, output = folders.run("--reuse")
    assert (status, folders.copied()) == (0, {"a": b"changed", "b": b"b"}), output
    (folders.root / ".data-sync" / "x" / "manifest.jsonl").unlink()
    folders.put({"c": b"c"})
    status, output = folders.run("--reuse")
    assert (status, folders.copied()) == (0, {"a": b"changed", "b": b"b", "c": b"c"}), output


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"before")
    client = FolderClient(tmp_path)
    (entry,) = client.entries()
    body = client.get_object(Bucket="", Key="a", IfMatch=entry["ETag"])["Body"]
    chunks = body.iter_chunks(3)
    assert next(chunks) == b"bef"
    (tmp_path / "a").write_bytes(b"after that")
    with pytest.raises(ChangedError):
        list(chunks)
    with pytest.raises(ChangedError):
        client.get_object(Bucket="", Key="a", IfMatch=entry["ETag"])

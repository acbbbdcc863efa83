"""Finding the newest good checkpoint among damaged ones, refusing those of another run, and listing without torch."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.training.checkpoint.parts import IDENTITY, SmallRun, assert_same, newest, saved_run
from training.checkpoint.manifest import FileEntry, Manifest
from training.checkpoint.storage import LocalStorage
from training.checkpoint.store import (
    CheckpointStore,
    FileWriter,
    bytes_writer,
    committed_steps,
    local_store,
    verify_run,
)
from training.errors import CheckpointError, ExitStatus, ResumeMismatchError

FILES = ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"]


def truncate(path: Path) -> None:
    """Truncate a file in the middle."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path: Path) -> None:
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))


def empty(path: Path) -> None:
    """Truncate a file to no bytes."""
    path.write_bytes(b"")


def make_a_folder(path: Path) -> None:
    """Replace a file by a folder that holds one."""
    path.unlink()
    path.mkdir()
    (path / "file").touch()


def link_to_itself(path: Path) -> None:
    """Replace a file by a symbolic link that never ends."""
    path.unlink()
    path.symlink_to(path.name)


def link_to_nothing(path: Path) -> None:
    """Replace a file by a symbolic link to a file that does not exist."""
    path.unlink()
    path.symlink_to("nowhere")


REPLACEMENTS: list[Callable[[Path], None]] = [make_a_folder, link_to_itself, link_to_nothing]
DAMAGES: list[Callable[[Path], None]] = [
    truncate,
    flip_a_bit,
    empty,
    Path.unlink,
    *REPLACEMENTS,
]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SmallRun]:
    """A folder with checkpoints of steps 10 and 20, and the run at step 10."""
    directory = tmp_path_factory.mktemp("pristine")
    saved_run(directory, 10, 20)
    at_ten = SmallRun()
    at_ten.train(10)
    return directory, at_ten


@pytest.fixture
def store(pristine: tuple[Path, SmallRun], tmp_path: Path) -> CheckpointStore:
    """A copy of those checkpoints that a test may damage."""
    copy = tmp_path / "checkpoints"
    for file in pristine[0].rglob("*.*"):
        target = copy / file.relative_to(pristine[0])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    return local_store(copy)


@pytest.mark.parametrize("file", FILES)
def test_a_damaged_newest_checkpoint_is_skipped(
    store: CheckpointStore, pristine: tuple[Path, SmallRun], file: str
) -> None:
    good = (store.path(20) / file).read_bytes()
    for damage in DAMAGES:
        path = store.path(20) / file
        damage(path)
        problems = store.verify(20)
        assert len(problems) == 1
        assert file in problems[0]
        assert store.verify(10) == []
        restored = newest(store)
        assert restored.progress.step == 10
        assert len(restored.skipped) == 1, damage
        assert restored.skipped[0].startswith(f"step-00000020: {file}")
        run = SmallRun(seed=1)
        run.load(restored)
        assert_same(run.tensors(), pristine[1].tensors())
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.write_bytes(good)


@pytest.mark.parametrize("file", ["model.safetensors", "manifest.json"])
@pytest.mark.parametrize("replace", REPLACEMENTS)
def test_a_folder_or_a_broken_link_in_an_old_checkpoint_stops_neither_reading_nor_writing(
    store: CheckpointStore, file: str, replace: Callable[[Path], None]
) -> None:
    replace(store.path(10) / file)
    assert store.steps() == ([20] if file == "manifest.json" else [10, 20])
    restored = newest(store)
    assert (restored.progress.step, restored.skipped) == (20, ())
    files = {name: bytes_writer(b"new") for name in FILES[:3]}
    store.commit(step=10, identity=IDENTITY, metric=None, files=files, expected_bytes=9)
    assert store.verify(10) == []
    replace(store.path(10) / file)
    assert store.remove_unfinished() == []
    assert store.keep_only({20}) == []
    assert store.folder_steps() == [20]


def test_of_good_checkpoints_the_newest_is_chosen(store: CheckpointStore, pristine: tuple[Path, SmallRun]) -> None:
    restored = newest(store)
    assert (restored.progress.step, restored.skipped, restored.notes) == (20, (), ())
    assert restored.path == store.path(20)
    modes = {file.stat().st_mode & 0o777 for file in pristine[0].rglob("*.*") if file.is_file()}
    assert modes == {0o644}, "others than the owner can read them"


def test_if_no_checkpoint_is_good_the_error_lists_them_all(store: CheckpointStore) -> None:
    (store.path(20) / "manifest.json").write_bytes((store.path(10) / "manifest.json").read_bytes())
    assert store.verify(20) == ["manifest.json is damaged: it belongs to step 10"]
    truncate(store.path(10) / "model.safetensors")
    flip_a_bit(store.path(20) / "manifest.json")
    with pytest.raises(CheckpointError, match=r"none of the 2 checkpoints .*step-00000020.*step-00000010") as caught:
        store.newest_good(IDENTITY)
    assert "run.name" in caught.value.remedy


def test_a_run_that_was_killed_in_its_first_save_has_no_checkpoint(tmp_path: Path, store: CheckpointStore) -> None:
    (store.path(20) / "manifest.json").unlink()
    assert verify_run(tmp_path) == [
        (store.path(10), []),
        (store.path(20), ["manifest.json is missing, the write did not finish"]),
    ]
    (store.path(10) / "manifest.json").unlink()
    assert store.newest_good(IDENTITY) is None
    none = local_store(tmp_path / "none")
    assert none.newest_good(IDENTITY) is None
    assert committed_steps(tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


def test_a_run_of_another_kind_is_refused_and_other_differences_are_reported(store: CheckpointStore) -> None:
    others: dict[str, str | int] = {
        "model": "resnet18",
        "dataset_fingerprint": "e" * 64,
        "global_batch": 128,
        "seed": 1,
    }
    for field, value in others.items():
        wanted = dataclasses.replace(IDENTITY, **{field: value})  # type: ignore[arg-type]
        expected = f"{field}: saved {getattr(IDENTITY, field)}, wanted {value}"
        with pytest.raises(ResumeMismatchError, match=expected) as caught:
            store.newest_good(wanted)
        assert caught.value.status is ExitStatus.REFUSED
        assert caught.value.remedy
    settings = {"optimizer": {"name": "adamw", "learning_rate": 0.01}, "model": {"options": {"width": 8}}}
    restored = store.newest_good(dataclasses.replace(IDENTITY, world=4, platform_version="9.0.0", settings=settings))
    assert restored is not None
    assert set(restored.notes) == {
        "world: saved 1, wanted 4",
        "platform_version: saved 0.1.0, wanted 9.0.0",
        "model.options.width: saved (unset), wanted 8",
        "optimizer.learning_rate: saved 0.003, wanted 0.01",
    }


def test_a_chosen_step_is_opened_or_an_error_that_names_the_others(tmp_path: Path, store: CheckpointStore) -> None:
    assert store.open(10, IDENTITY).progress.step == 10
    truncate(store.path(20) / "optimizer.safetensors")
    with pytest.raises(
        CheckpointError, match=r"step-00000020 is not good: optimizer.safetensors has \d+ bytes"
    ) as caught:
        store.open(20, IDENTITY)
    assert caught.value.remedy == "choose one of the steps 10"
    shutil.rmtree(store.path(10))
    with pytest.raises(CheckpointError) as caught:
        store.open(20, IDENTITY)
    assert caught.value.remedy == "the run has no other checkpoint"


def test_unrelated_files_are_ignored_and_folders_without_a_manifest_removed(store: CheckpointStore) -> None:
    notes = store.path(10).parent / "notes" / "keep.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    link_to_itself_at = store.path(30)
    link_to_itself_at.symlink_to(link_to_itself_at.name)
    assert store.keep_only({20}) == []
    assert store.steps() == [20]
    (store.path(20) / "manifest.json").unlink()
    assert store.remove_unfinished() == []
    assert store.folder_steps() == []
    assert notes.read_text() == "mine"
    for step in (7, 99_999_999, 100_000_000):
        store.path(step).mkdir()
    assert store.folder_steps() == [7, 99_999_999, 100_000_000], "with more than eight digits, too"


def commit(store: CheckpointStore, step: int, write: FileWriter) -> Manifest:
    """Commit a checkpoint of one file."""
    return store.commit(step=step, identity=IDENTITY, metric=0.5, files={"a.bin": write}, expected_bytes=12345)


def test_a_commit_describes_its_file_and_replaces_what_the_folder_held(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    left_over = store.path(3) / "left over"
    left_over.parent.mkdir()
    left_over.touch()
    manifest = commit(store, 3, bytes_writer(b"content"))
    digest = hashlib.sha256(b"content").hexdigest()
    assert manifest.files == (FileEntry(name="a.bin", bytes=7, sha256=digest),)
    assert (manifest.step, manifest.metric, manifest.identity) == (3, 0.5, IDENTITY)
    assert store.manifests() == [manifest]
    assert not left_over.exists()


def test_a_commit_that_fails_names_the_reason_and_leaves_nothing(store: CheckpointStore) -> None:
    full = r"it needs 12345 bytes and \d+ are free"
    for number, reason in ((errno.ENOSPC, full), (errno.EDQUOT, full), (errno.EIO, "Input/output error")):

        def fail(path: Path, number: int = number) -> None:
            path.touch()
            raise OSError(number, os.strerror(number))

        with pytest.raises(CheckpointError, match=rf"step 30 could not be written to .*: {reason}"):
            commit(store, 30, fail)
        assert store.folder_steps() == [10, 20]


def test_folders_that_cannot_be_removed_are_returned(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = LocalStorage.remove

    def refuse_one(storage: LocalStorage, folder: str, *, first: str) -> None:
        if folder == "step-00000010":
            raise PermissionError(1, "Operation not permitted")
        remove(storage, folder, first=first)

    monkeypatch.setattr(LocalStorage, "remove", refuse_one)
    (failure,) = store.keep_only(set())
    assert failure.startswith(f"the checkpoint {store.path(10)} could not be removed: [Errno 1]")
    assert store.folder_steps() == [10]


def test_a_checkpoint_that_cannot_be_read_is_skipped(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = LocalStorage.sizes

    def fail_for_20(storage: LocalStorage, folder: str) -> dict[str, int]:
        if folder == "step-00000020":
            raise OSError(errno.EIO, "Input/output error")
        return sizes(storage, folder)

    monkeypatch.setattr(LocalStorage, "sizes", fail_for_20)
    assert store.verify(20) == ["its files cannot be read: [Errno 5] Input/output error"]
    assert store.verify(10) == []

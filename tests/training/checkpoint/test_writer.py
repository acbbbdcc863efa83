"""The loop waits for a copy; the thread writes, prunes, and reports errors on request; also after SIGKILL and refusals of a file system."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from tests.limits import files_up_to
from tests.training.checkpoint.parts import IDENTITY, SmallRun, Values, assert_same, checkpointer, newest, saved_run
from training.checkpoint.host_copy import HostCopy
from training.checkpoint.retention import Retention
from training.checkpoint.sharding import NamedTensors
from training.checkpoint.storage import LocalStorage
from training.checkpoint.store import CheckpointStore, local_store
from training.errors import CheckpointError


class GatedStorage(LocalStorage):
    """A very slow disk: it writes nothing while its gate is closed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.gate = threading.Event()
        self.gate.set()
        self.writing_began = threading.Event()

    @contextmanager
    def writing(self, folder: str, name: str) -> Iterator[Path]:
        """Wait for the gate, then write."""
        self.writing_began.set()
        assert self.gate.wait(30)
        with super().writing(folder, name) as path:
            yield path

    def close_gate(self) -> None:
        """Hold the next write."""
        self.gate.clear()
        self.writing_began.clear()


def load(store: CheckpointStore, step: int) -> SmallRun:
    """The run as saved at a step."""
    run = SmallRun(seed=1)
    run.load(store.open(step, IDENTITY))
    return run


def test_reused_buffers_do_not_mix_two_steps(tmp_path: Path) -> None:
    store, run = local_store(tmp_path), SmallRun()
    expected = {}
    with checkpointer(store) as writer:
        for _ in range(6):
            expected[run.step] = run.tensors()  # the optimizer has no state before the first step
            run.save(writer, final=True)
            assert store.verify(run.step) == [], "a final save returns when it is committed"
            run.train()
    for step, tensors in expected.items():
        assert_same(load(store, step).tensors(), tensors)


def test_poll_returns_a_committed_checkpoint_once_with_its_size_and_times(tmp_path: Path) -> None:
    store, run = local_store(tmp_path), SmallRun()
    run.train(5)
    with checkpointer(store) as writer:
        run.save(writer, metric=0.5, final=True)
        (told,) = writer.poll()
        assert writer.poll() == []
    files = [file for file in store.path(5).iterdir() if file.name != "manifest.json"]
    assert (told.step, told.path, told.warnings, told.superseded) == (5, store.path(5), (), ())
    assert told.bytes == sum(file.stat().st_size for file in files)
    assert told.stall_seconds > 0
    assert told.write_seconds > 0
    assert store.manifests()[0].metric == 0.5


def test_with_slow_storage_only_the_newest_waiting_snapshot_is_written(tmp_path: Path) -> None:
    storage = GatedStorage(tmp_path)
    store, run = CheckpointStore(storage), SmallRun()
    storage.close_gate()
    with checkpointer(store) as writer:
        run.train()
        run.save(writer)
        assert storage.writing_began.wait(30)
        for _ in range(3):
            run.train()
            assert run.save(writer) < 10, "it waited for the storage"
        at_four = run.tensors()
        run.train()
        storage.gate.set()
    assert [(c.step, c.superseded) for c in writer.poll()] == [(1, ()), (4, (2, 3))]
    assert_same(load(store, 4).tensors(), at_four)


def test_a_waiting_snapshot_with_a_metric_is_not_replaced_by_one_without(tmp_path: Path) -> None:
    storage = GatedStorage(tmp_path)
    run = SmallRun()
    storage.close_gate()
    with checkpointer(CheckpointStore(storage)) as writer:
        for metric in (None, 0.9, None):
            run.train()
            assert 0 < run.save(writer, metric=metric) < 10
            assert storage.writing_began.wait(30)
        storage.gate.set()
    assert [(c.step, c.superseded) for c in writer.poll()] == [(1, ()), (2, (3,))]


@pytest.mark.parametrize("is_saved_again", [False, True])
def test_the_final_save_is_never_dropped(tmp_path: Path, *, is_saved_again: bool) -> None:
    """Of a step that waits to be saved, the final save is the same one."""
    storage = GatedStorage(tmp_path)
    run = SmallRun()
    storage.close_gate()
    with checkpointer(CheckpointStore(storage)) as writer:
        for metric in (None, 0.9):
            run.train()
            run.save(writer, metric=metric)
            assert storage.writing_began.wait(30)
        run.train(0 if is_saved_again else 1)
        threading.Timer(0.2, storage.gate.set).start()
        run.save(writer, final=True)
        committed = [(1, ()), (2, ())] if is_saved_again else [(1, ()), (2, ()), (3, ())]
        assert [(c.step, c.superseded) for c in writer.poll()] == committed


def test_a_step_that_is_committed_already_is_not_written_again(tmp_path: Path) -> None:
    store, run = saved_run(tmp_path, 5)
    before = (store.path(5) / "manifest.json").stat().st_ino
    with checkpointer(store, start_step=5) as writer:
        run.save(writer, final=True)
        assert writer.poll() == []
        run.train()
        run.save(writer, final=True, tag=Values(text="first"))
        run.save(writer, final=True, tag=Values(text="second"))
        assert [c.step for c in writer.poll()] == [6]
    assert (store.path(5) / "manifest.json").stat().st_ino == before
    assert store.open(6, IDENTITY).state.extra == {"tag": {"text": "first"}}


@pytest.fixture
def allocations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that allocated host memory, in order."""
    threads = list[str]()
    allocate = HostCopy.allocate

    def noting(copy: HostCopy, tensors: dict[str, NamedTensors]) -> None:
        threads.append(threading.current_thread().name)
        allocate(copy, tensors)

    monkeypatch.setattr(HostCopy, "allocate", noting)
    return threads


def test_reserved_memory_is_used_by_the_first_save(tmp_path: Path, allocations: list[str]) -> None:
    run = SmallRun()
    run.train()
    with checkpointer(local_store(tmp_path)) as writer:
        writer.reserve(run.states())
        writer.reserve(run.states())
        wait(writer._futures)
        run.save(writer, final=True)
        assert [c.step for c in writer.poll()] == [1]
    assert allocations == ["checkpoint_0"]
    assert_same(load(local_store(tmp_path), 1).tensors(), run.tensors())


def test_memory_that_was_allocated_is_not_reserved_again(tmp_path: Path, allocations: list[str]) -> None:
    run = SmallRun()
    with checkpointer(local_store(tmp_path)) as writer:
        run.save(writer, final=True)
        writer.reserve(run.states())
    assert len(allocations) == 1


def test_only_retained_checkpoints_are_left_of_those_from_before_a_restart_too(tmp_path: Path) -> None:
    store, run = saved_run(tmp_path, 1, 2)
    rule = Retention(keep_last=2, keep_best=1, higher_is_better=True)
    with checkpointer(store, retention=rule, start_step=2) as writer:
        for metric in (0.1, 0.9, 0.2, None, 0.3):
            run.train()
            run.save(writer, metric=metric, final=True)
    assert store.steps() == [4, 6, 7]
    assert all(store.verify(step) == [] for step in store.steps())


def test_a_bad_checkpoint_is_written_again_or_removed_after_the_next_commit(tmp_path: Path) -> None:
    store, _ = saved_run(tmp_path, 1, 2, 9)
    (store.path(2) / "optimizer.safetensors").unlink()
    (store.path(9) / "model.safetensors").write_bytes(b"damaged")
    restored = newest(store)
    run = load(store, restored.progress.step)
    rule = Retention(keep_last=1, keep_best=0, higher_is_better=True)
    with checkpointer(store, retention=rule, start_step=run.step) as writer:
        assert store.folder_steps() == [1, 2, 9]
        run.train()
        run.save(writer, final=True)
    assert store.folder_steps() == [2]
    assert store.verify(2) == []


def test_an_old_checkpoint_that_cannot_be_removed_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    store, run = saved_run(tmp_path, 1)
    rule = Retention(keep_last=1, keep_best=0, higher_is_better=True)
    with checkpointer(store, retention=rule, start_step=1) as writer:
        run.train()
        with monkeypatch.context() as broken:
            broken.setattr(shutil, "rmtree", refuse)
            run.save(writer, final=True)
        (told,) = writer.poll()
    assert "step-00000001 could not be removed: [Errno 1] Operation not permitted" in told.warnings[0]
    assert store.verify(2) == []


def test_a_new_writer_reports_failed_removals_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, run = saved_run(tmp_path, 1, 2)
    (store.path(2) / "manifest.json").unlink()
    monkeypatch.setattr(store, "remove_unfinished", lambda: ["step-00000002 could not be removed"])
    with checkpointer(store, start_step=1) as writer:
        for _ in range(2):
            run.train()
            run.save(writer, final=True)
        assert [told.warnings for told in writer.poll()] == [("step-00000002 could not be removed",), ()]


KILLS = 8
KEEP_TWO = Retention(keep_last=2, keep_best=0, higher_is_better=True)


def resume(store: CheckpointStore) -> SmallRun:
    """The run, resumed from its newest good checkpoint if any."""
    run = SmallRun()
    if restored := store.newest_good(IDENTITY):
        run.load(restored)
    return run


def train_and_save_every_step(directory: Path, ready: Connection) -> None:
    """The process to kill: resume, then train and save forever."""
    torch.set_num_threads(1)
    store = local_store(directory)
    run = resume(store)
    writer = checkpointer(store, retention=KEEP_TWO, start_step=run.step)
    ready.send(run.step)
    while True:
        run.train()
        run.save(writer)
        writer.poll()


def test_a_repeatedly_killed_run_always_has_a_good_checkpoint_of_the_uninterrupted_run(tmp_path: Path) -> None:
    processes = multiprocessing.get_context("forkserver")
    # torch imports the last of these with the first optimizer, which takes a second in every process.
    processes.set_forkserver_preload([__name__, "torch._dynamo"])
    moments = random.Random(0)
    store, uninterrupted = local_store(tmp_path), SmallRun()
    for _ in range(KILLS):
        receiver, sender = processes.Pipe(duplex=False)
        victim = processes.Process(target=train_and_save_every_step, args=(tmp_path, sender), daemon=True)
        victim.start()
        sender.close()
        assert receiver.recv() == uninterrupted.step
        time.sleep(moments.uniform(0.02, 0.3))
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()
        run = resume(store)
        uninterrupted.train(run.step - uninterrupted.step)
        assert_same(run.tensors(), uninterrupted.tensors() if run.step else SmallRun().tensors())
    assert uninterrupted.step > KILLS


def test_a_file_system_error_is_raised_by_close_and_leaves_no_partial_checkpoint(tmp_path: Path) -> None:
    blocked, run = tmp_path / "blocked", SmallRun()
    run.train()
    store, writer = local_store(tmp_path / "checkpoints"), checkpointer(local_store(tmp_path / "checkpoints"))
    with files_up_to(2048):
        run.save(writer, final=True)
        with pytest.raises(CheckpointError, match=r"step 1 could not be written to .*: File too large"):
            writer.close()
    assert store.folder_steps() == []
    assert store.newest_good(IDENTITY) is None
    blocked.write_text("a file in place of the folder")
    writer = checkpointer(local_store(blocked))
    run.save(writer, final=True)
    with pytest.raises(CheckpointError, match=re.escape(f"could not be written to {blocked}")):
        writer.poll()
    writer.close()

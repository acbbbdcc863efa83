"""Real faults: SIGKILL in the middle of saving, a full disk, a file system that refuses."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from tests.limits import files_up_to
from tests.training.checkpoint.parts import IDENTITY, SmallRun, assert_same, checkpointer
from training.checkpoint.retention import Retention
from training.checkpoint.store import CheckpointStore, local_store
from training.errors import CheckpointError

KILLS = 8
KEEP_TWO = Retention(keep_last=2, keep_best=0, higher_is_better=True)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


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

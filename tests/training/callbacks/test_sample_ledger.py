"""The ledger of sample ids, across restarts and kills."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import torch

from training.callbacks import sample_ledger as ledger
from training.checkpoint.manifest import TrainProgress
from training.data.types import Batch
from training.loop import Loop


def write(folder: Path, *, rank: int = 0, world: int = 1, attempt: int = 0, **ids_of_steps: list[int]) -> None:
    """Record an attempt's steps of epoch 1, named `step1=[ids]`; it starts before the first."""
    first = min(int(name.removeprefix("step")) for name in ids_of_steps)
    start = TrainProgress(step=first - 1, epoch=1, step_in_epoch=first - 1, samples=0)
    loop = cast("Loop", SimpleNamespace(progress=start))
    writer = ledger.SampleLedger(folder, rank=rank, world=world, attempt=attempt)
    writer.on_run_start(loop)
    for name, ids in ids_of_steps.items():
        batch = Batch(
            inputs=torch.zeros(len(ids), 1),
            targets=torch.zeros(len(ids), dtype=torch.int64),
            ids=np.array(ids, dtype=np.int64),
            count=len(ids),
        )
        done = int(name.removeprefix("step")) - 1
        loop.progress = TrainProgress(step=done, epoch=1, step_in_epoch=done, samples=0)
        writer.on_step_start(loop, [batch])
    writer.on_close(loop)


def test_the_ids_of_all_ranks_are_merged_and_one_consumed_twice_listed_twice(tmp_path: Path) -> None:
    assert ledger.consumed_ids(tmp_path) == {}
    write(tmp_path, rank=0, world=2, step1=[4, 0], step2=[2])
    write(tmp_path, rank=1, world=2, step1=[1, 3], step2=[0])
    assert ledger.consumed_ids(tmp_path) == {1: [0, 0, 1, 2, 3, 4]}


def test_only_the_last_attempt_of_a_repeated_step_counts(tmp_path: Path) -> None:
    write(tmp_path, step1=[0], step2=[9])
    write(tmp_path, attempt=1, step2=[1])
    assert ledger.consumed_ids(tmp_path) == {1: [0, 1]}


def test_uncommitted_steps_of_ranks_that_the_next_attempt_lacks_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, rank=0, world=2, step1=[0], step2=[2])
    write(tmp_path, rank=1, world=2, step1=[1], step2=[3])
    write(tmp_path, attempt=1, step2=[2, 3])
    assert ledger.consumed_ids(tmp_path) == {1: [0, 1, 2, 3]}


def test_committed_steps_of_ranks_that_the_next_attempt_lacks_count(tmp_path: Path) -> None:
    write(tmp_path, rank=0, world=2, step1=[0])
    write(tmp_path, rank=1, world=2, step1=[1])
    write(tmp_path, attempt=1, step2=[2, 3])
    assert ledger.consumed_ids(tmp_path) == {1: [0, 1, 2, 3]}


def test_a_truncated_line_is_ignored_and_a_step_after_it_kept(tmp_path: Path) -> None:
    write(tmp_path, step1=[0], step2=[1])
    path = tmp_path / ledger.FOLDER / "rank-0.jsonl"
    path.write_bytes(path.read_bytes()[:-3])
    assert ledger.consumed_ids(tmp_path) == {1: [0]}
    write(tmp_path, attempt=1, step2=[1], step3=[2])
    assert ledger.consumed_ids(tmp_path) == {1: [0, 1, 2]}

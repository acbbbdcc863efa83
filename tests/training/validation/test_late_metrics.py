"""Checkpoints that are validated after their commit: which one is next, kept until then, and ranked by what comes."""

from __future__ import annotations

import math
from concurrent.futures import wait
from pathlib import Path
from threading import Event

from tests.training.checkpoint.parts import IDENTITY, SmallRun, progress
from training.checkpoint.late_metrics import FILE, LateMetrics, LateValidations, ranking_metrics, read
from training.checkpoint.manifest import TrainProgress
from training.checkpoint.ranks import OneRank
from training.checkpoint.retention import Retention
from training.checkpoint.store import CheckpointStore, local_store
from training.checkpoint.writer import AsyncCheckpointer
from training.validation.queue import ValidationQueue

NEWEST_AND_BEST = Retention(keep_last=1, keep_best=1, higher_is_better=True)


def committed(folder: Path, *steps: int, awaited: int) -> tuple[CheckpointStore, LateValidations, AsyncCheckpointer]:
    """A store with checkpoints of some steps, of which one awaits its metric."""
    store, run = local_store(folder), SmallRun()
    late = LateValidations(store, ranked_by="accuracy")
    writer = AsyncCheckpointer(
        store, ranks=OneRank(), identity=IDENTITY, retention=NEWEST_AND_BEST, start_step=0, late=late
    )
    for step in steps:
        run.train(step - run.step)
        if step == awaited:
            late.expect(progress(step))
        writer.save(progress(step), run.states(), metric=None, awaits_metric=step == awaited, final=True)
    return store, late, writer


def pruned(writer: AsyncCheckpointer) -> None:
    writer.prune()
    wait(writer._futures)


def test_a_checkpoint_is_kept_until_it_is_validated_and_then_if_it_is_the_best(tmp_path: Path) -> None:
    store, late, writer = committed(tmp_path, 1, 2, 3, awaited=1)
    with writer:
        assert store.steps() == [1, 3]
        late.settle(1, LateMetrics(metrics={"accuracy": 0.5, "loss": 1.0}))
        pruned(writer)
        assert store.steps() == [1, 3]
        assert ranking_metrics(store, "accuracy") == {1: 0.5, 3: None}
        assert store.verify(1) == []


def test_a_checkpoint_without_a_metric_is_removed_like_any_other(tmp_path: Path) -> None:
    for name, outcome in (
        ("skipped", LateMetrics(skipped="slow")),
        ("no number", LateMetrics(metrics={"accuracy": math.nan})),
    ):
        store, late, writer = committed(tmp_path / name, 1, 2, 3, awaited=1)
        with writer:
            late.settle(1, outcome)
            assert late.take_change()
            pruned(writer)
        assert store.steps() == [3], name


def test_a_snapshot_that_awaits_its_metric_is_not_replaced_by_one_without(tmp_path: Path) -> None:
    _, late, writer = committed(tmp_path, 1, awaited=1)
    run = SmallRun()
    with writer:
        released = Event()
        writer._thread.submit(released.wait, 60)
        late.expect(progress(2))
        writer.save(progress(2), run.states(), metric=None, awaits_metric=True)
        writer.save(progress(3), run.states(), metric=None)
        released.set()
    found = {one.step: one.superseded for one in writer.poll()}
    assert found[2] == (3,)


def test_a_new_process_finds_what_an_earlier_one_has_not_brought_to_an_end(tmp_path: Path) -> None:
    store, late, writer = committed(tmp_path, 10, awaited=10)
    writer.close()

    def is_due(at: TrainProgress) -> bool:
        return at.step_in_epoch == 0

    def again() -> list[int]:
        return LateValidations(store, ranked_by="accuracy").find(until=10, is_due=is_due)

    assert again() == [10]
    assert LateValidations(store, ranked_by="accuracy").find(until=9, is_due=is_due) == []
    late.settle(10, LateMetrics(metrics={"accuracy": 0.25}))
    assert again() == []


def test_a_file_that_was_cut_off_is_as_if_there_were_none(tmp_path: Path) -> None:
    store, late, writer = committed(tmp_path, 1, awaited=1)
    writer.close()
    late.settle(1, LateMetrics(metrics={"accuracy": 0.1 + 0.2}))
    assert read(store.path(1)) == LateMetrics(metrics={"accuracy": 0.1 + 0.2})
    (store.path(1) / FILE).write_text('{"metrics": {"accu', encoding="utf-8")
    assert read(store.path(1)) is None
    assert ranking_metrics(store, "accuracy") == {1: None}


def test_a_step_runs_at_once_and_the_next_one_after_it() -> None:
    queue = ValidationQueue()
    assert [queue.add(step) for step in (1, 2)] == [None, None]
    assert (queue.running, queue.waiting) == (1, 2)
    assert [queue.finish(), queue.finish()] == [2, None]


def test_of_the_steps_that_wait_the_newest_one_remains() -> None:
    queue = ValidationQueue()
    assert [queue.add(step) for step in (1, 2, 3, 4)] == [None, None, 2, 3]
    assert queue.clear() == [1, 4]
    assert queue.add(5) is None

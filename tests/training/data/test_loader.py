"""Loaders read each sample once, in an order independent of world size, processes and start step, and batches are copied one ahead."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from tests.engines import report_table
from tests.processes import run_command
from tests.training.data.ids import IdSplit
from tests.training.runs import small_settings
from training.config.schema import DataSettings
from training.data.loader import MINIMUM_ROWS, EvalLoader, TrainLoader
from training.data.order import BatchPlan
from training.data.registry import load_dataset
from training.data.transfer import one_ahead
from training.data.types import Batch
from training.errors import DataError, LoaderProcessError, PlatformError
from training.exhausted_memory import explained_in_training
from training.recovery.causes import Cause, cause_of

BUNDLE = load_dataset(DataSettings(dataset="digits"))
SIZE = len(BUNDLE.train)


def _loader(
    *,
    world: int = 1,
    rank: int = 0,
    accumulation: int = 1,
    loader_workers: int = 0,
    augment: bool = True,
    copy_to: torch.device | None = None,
) -> TrainLoader:
    plan = BatchPlan(size=SIZE, global_batch=96, world=world, accumulation=accumulation)
    return TrainLoader(
        BUNDLE.train, plan=plan, seed=5, rank=rank, loader_workers=loader_workers, augment=augment, copy_to=copy_to
    )


def _rows_without_padding(batches: list[Batch]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        torch.cat([batch.inputs[: batch.count] for batch in batches]),
        torch.cat([batch.targets[: batch.count] for batch in batches]),
        torch.cat([torch.from_numpy(batch.ids) for batch in batches]),
    )


def _assert_equal_steps(first: list[list[Batch]], second: list[list[Batch]]) -> None:
    assert len(first) == len(second)
    for step, other in zip(first, second, strict=True):
        for batch, counterpart in zip(step, other, strict=True):
            assert torch.equal(batch.inputs, counterpart.inputs)
            assert torch.equal(batch.targets, counterpart.targets)
            assert batch.ids.tolist() == counterpart.ids.tolist()
            assert batch.count == counterpart.count


@settings(deadline=None)
@given(
    size=st.integers(1, 200),
    global_batch=st.integers(1, 40),
    world=st.sampled_from([1, 2, 4]),
    accumulation=st.integers(1, 4),
    epoch=st.integers(0, 3),
)
def test_ranks_read_each_sample_once(size: int, global_batch: int, world: int, accumulation: int, epoch: int) -> None:
    plan = BatchPlan(size=size, global_batch=global_batch, world=world, accumulation=accumulation)
    ids = [
        int(sample)
        for rank in range(world)
        for step in TrainLoader(IdSplit(size), plan=plan, seed=1, rank=rank).epoch(epoch)
        for batch in step
        for sample in batch.ids
    ]
    assert sorted(ids) == list(range(size))


@settings(deadline=None)
@given(
    size=st.integers(2, 60),
    global_batch=st.integers(1, 16),
    world=st.sampled_from([1, 2, 4]),
    accumulation=st.integers(1, 4),
)
def test_short_batches_get_other_samples_too(size: int, global_batch: int, world: int, accumulation: int) -> None:
    plan = BatchPlan(size=size, global_batch=global_batch, world=world, accumulation=accumulation)
    for rank in range(world):
        for step in TrainLoader(IdSplit(size), plan=plan, seed=1, rank=rank).epoch(0):
            assert len(step) == accumulation
            for batch in step:
                assert len(batch.inputs) == len(batch.targets) == max(batch.count, MINIMUM_ROWS)
                assert batch.targets[: batch.count].tolist() == batch.ids.tolist()
                assert len(set(batch.targets.tolist())) == len(batch.targets)


@settings(deadline=None)
@given(size=st.integers(2, 60), global_batch=st.integers(1, 16), accumulation=st.integers(1, 4))
def test_micro_batches_of_a_step_can_have_equal_rows(size: int, global_batch: int, accumulation: int) -> None:
    plan = BatchPlan(size=size, global_batch=global_batch, world=1, accumulation=accumulation)
    padded, plain = (TrainLoader(IdSplit(size), plan=plan, seed=1, rank=0, equal_rows=equal) for equal in (True, False))
    for step, other in zip(padded.epoch(0), plain.epoch(0), strict=True):
        assert {len(batch.inputs) for batch in step} == {max(len(batch.inputs) for batch in other)}
        assert [batch.ids.tolist() for batch in step] == [batch.ids.tolist() for batch in other]


@pytest.mark.parametrize(("world", "accumulation"), [(2, 3), (4, 1)])
def test_the_ranks_together_read_the_step_of_a_single_rank_bit_for_bit(world: int, accumulation: int) -> None:
    ranks = [list(_loader(world=world, rank=rank, accumulation=accumulation).epoch(2)) for rank in range(world)]
    for step, single in enumerate(_loader().epoch(2)):
        found = _rows_without_padding([batch for rank in ranks for batch in rank[step]])
        for one, expected in zip(found, _rows_without_padding(single), strict=True):
            assert torch.equal(one, expected)


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_loader_processes_early_exits_and_start_steps_change_no_batch(loader_workers: int) -> None:
    loader = _loader(loader_workers=loader_workers, accumulation=2)
    for _ in zip(range(3), loader.epoch(0), strict=False):
        pass
    for epoch in (0, 1):
        whole = list(_loader(accumulation=2).epoch(epoch))
        _assert_equal_steps(list(loader.epoch(epoch)), whole)
        _assert_equal_steps(list(loader.epoch(epoch, start_step=9)), whole[9:])


def test_loading_does_not_advance_the_global_generator() -> None:
    before = torch.get_rng_state()
    for loader_workers in (0, 1):
        list(_loader(loader_workers=loader_workers).epoch(0))
        list(EvalLoader(BUNDLE.test, batch=100, rank=0, world=1, loader_workers=loader_workers))
    assert torch.equal(torch.get_rng_state(), before)


def test_augmentation_differs_between_epochs_and_can_be_disabled() -> None:
    sample = 17

    def read(epoch: int, *, augment: bool) -> torch.Tensor:
        (found,) = (
            batch.inputs[batch.ids.tolist().index(sample)]
            for (batch,) in _loader(augment=augment).epoch(epoch)
            if sample in batch.ids
        )
        return found

    plain = BUNDLE.train.read(np.array([sample]))[0][0]
    assert all(torch.equal(read(epoch, augment=False), plain) for epoch in range(4))
    assert len(torch.unique(torch.stack([read(epoch, augment=True) for epoch in range(8)]), dim=0)) > 1


def test_a_plan_for_another_number_of_samples_is_rejected() -> None:
    plan = BatchPlan(size=SIZE + 1, global_batch=64, world=1)
    with pytest.raises(ValueError, match=f"plan.size={SIZE + 1}, but the training split has {SIZE} samples"):
        TrainLoader(BUNDLE.train, plan=plan, seed=0, rank=0)


@settings(deadline=None)
@given(size=st.integers(1, 100), batch=st.integers(1, 30), world=st.integers(1, 5))
def test_in_evaluation_the_ranks_share_the_batches_of_a_single_rank(size: int, batch: int, world: int) -> None:
    single = list(EvalLoader(IdSplit(size), batch=batch, rank=0, world=1))
    assert [int(sample) for found in single for sample in found.ids] == list(range(size))
    assert all(found.count == len(found.inputs) == len(found.ids) <= batch for found in single)
    for rank in range(world):
        loader = EvalLoader(IdSplit(size), batch=batch, rank=rank, world=world)
        assert loader.batches == len(single)
        _assert_equal_steps([list(loader)], [single[rank::world]])


def test_loader_workers_do_not_change_evaluation_batches_in_any_iteration() -> None:
    in_process = list(EvalLoader(BUNDLE.test, batch=50, rank=1, world=2))
    prefetching = EvalLoader(BUNDLE.test, batch=50, rank=1, world=2, loader_workers=2)
    next(iter(prefetching))  # one that ends early
    for _ in range(2):
        _assert_equal_steps([list(prefetching)], [in_process])


def _readers() -> set[int]:
    return {process.pid for process in multiprocessing.active_children() if process.pid is not None}


def test_loader_workers_live_as_long_as_their_loader() -> None:
    before = _readers()
    train, evaluation = _loader(loader_workers=2), EvalLoader(BUNDLE.test, batch=50, rank=0, world=1, loader_workers=2)
    seen = []
    for epoch in range(3):
        for _ in train.epoch(epoch):
            pass
        list(evaluation)
        seen.append(_readers() - before)
    assert len(seen[0]) == 4
    assert seen[1:] == seen[:1] * 2, "a process was restarted between two epochs"


class Recorded:
    """Copies that only write down what happened."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def start(self, item: int, /) -> tuple[int]:
        self.events.append(f"start {item}")
        return (item,)

    def finish(self, copy: tuple[int], /) -> int:
        self.events.append(f"finish {copy[0]}")
        return copy[0]


def consumed(items: Iterator[int], copies: Recorded) -> list[int]:
    """The copied items; writes down when each is computed on."""
    found = []
    for item in one_ahead(items, copies):
        copies.events.append(f"compute {item}")
        found.append(item)
    return found


def test_the_next_copy_has_started_before_an_item_is_computed_on() -> None:
    copies = Recorded()
    consumed(iter([1, 2, 3]), copies)
    assert copies.events == [
        *("start 1", "start 2", "finish 1", "compute 1"),
        *("start 3", "finish 2", "compute 2"),
        *("finish 3", "compute 3"),
    ]


@given(items=st.lists(st.integers()))
def test_every_item_arrives_once_and_in_order(items: list[int]) -> None:
    assert consumed(iter(items), Recorded()) == items


def test_an_item_that_cannot_be_read_does_not_cost_the_one_before() -> None:
    def reading() -> Iterator[int]:
        yield 1
        yield 2
        raise DataError("sample 3 is truncated")

    copies = Recorded()
    with pytest.raises(DataError, match="sample 3 is truncated"):
        consumed(reading(), copies)
    assert copies.events[-2:] == ["finish 2", "compute 2"]


def test_leaving_early_reads_one_item_more_than_was_consumed() -> None:
    items = iter(range(10))
    copied = one_ahead(items, Recorded())
    assert [next(copied), next(copied)] == [0, 1]
    copied.close()  # type: ignore[attr-defined] # a generator
    assert next(items) == 3


def gpu() -> torch.device:
    if not torch.cuda.is_available():
        report_table.skipped("GPU", "none on this machine", "a machine with an NVIDIA GPU")
    report_table.ran("GPU")
    return torch.device("cuda", 0)


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_cuda_batches_are_those_of_the_host_in_the_same_order(loader_workers: int) -> None:
    device = gpu()
    copied = []
    for step in _loader(accumulation=2, loader_workers=loader_workers, copy_to=device).epoch(0, 3):
        assert {batch.inputs.device for batch in step} == {device}
        copied.append([replace(one, inputs=one.inputs.cpu(), targets=one.targets.cpu()) for one in step])
    _assert_equal_steps(copied, list(_loader(accumulation=2).epoch(0, 3)))


def test_cuda_copies_overlap_with_computation_and_their_memory_is_not_reused_early() -> None:
    device = gpu()
    loader = EvalLoader(BUNDLE.train, batch=100, rank=0, world=1, copy_to=device)
    busy = torch.randn(2048, 2048, device=device)
    sums = []
    for batch in loader:
        for _ in range(20):  # the host runs far ahead of the GPU
            busy = busy @ busy / 2048
        sums.append(batch.inputs.double().sum() + 0 * busy[0, 0].double())
        del batch
    expected = [float(batch.inputs.double().sum()) for batch in EvalLoader(BUNDLE.train, batch=100, rank=0, world=1)]
    assert [float(found) for found in sums] == pytest.approx(expected, rel=1e-12)


_HANGING = """
import os, sys, time
import torch
from torch.utils.data import DataLoader
from training.data import forking
from training.errors import PlatformError

forking.PATIENCE = (0.5, 60.0) if sys.argv[1] == "once" else (0.2, 0.2)
hung = []

def hang():  # in the child, before it runs anything of ours
    if sys.argv[1] == "always" or len(hung) == 1:
        time.sleep(600)

os.register_at_fork(before=lambda: hung.append(os.getpid()), after_in_child=hang)
loader = DataLoader([1, 2, 3], batch_size=None, num_workers=1, multiprocessing_context=forking.StartedForkContext())
try:
    print([int(one) for one in loader], len(hung))
except PlatformError as error:
    print(error, error.remedy, sep=chr(10))
"""


def test_a_process_that_hangs_in_the_fork_is_replaced() -> None:
    ran = run_command([sys.executable, "-c", _HANGING, "once"], seconds=200)
    assert ran.stdout == "[1, 2, 3] 2\n"
    assert "a process of the data loader did not start in 0 s: starting another" in ran.stderr


def test_processes_that_never_start_are_an_error_with_a_remedy() -> None:
    ran = run_command([sys.executable, "-c", _HANGING, "always"], seconds=200)
    assert ran.stdout.startswith("no process of the data loader started in 0 s")
    assert "data.loader_workers: 0" in ran.stdout


_KILLED = """
import os, signal, time
from training.data.forking import StartedForkContext

StartedForkContext().Process(target=time.sleep, args=(600,)).start()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_ends_with_a_rank_that_is_killed_before_the_loader_s_loop_begins() -> None:
    # The process has the rank's output, too, which is read to its end.
    assert run_command([sys.executable, "-c", _KILLED], seconds=60).returncode == -signal.SIGKILL


class Unsendable(Tensor):
    """A target that no process can pass on, as where shared memory is full: torch's error of a small /dev/shm."""

    def __reduce_ex__(self, _protocol: object) -> str:
        raise RuntimeError(
            "unable to allocate shared memory(shm) for file </torch_7>: No space left on device (28)\nstack"
        )


class UnsendableSplit(IdSplit):
    """Its batches cannot leave a loader process."""

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        return super().read(ids, uniforms)[0], torch.zeros(len(ids)).as_subclass(Unsendable)


def test_a_batch_that_a_loader_process_cannot_pass_on_ends_the_epoch_with_the_cause() -> None:
    plan = BatchPlan(size=24, global_batch=8, world=1)
    loader = TrainLoader(UnsendableSplit(24), plan=plan, seed=1, rank=0, loader_workers=2)
    with pytest.raises(PlatformError) as caught:
        next(loader.epoch(0))
    assert "No space left on device (28); /dev/shm has " in str(caught.value)
    assert "data.loader_workers" in caught.value.remedy


def test_a_loader_process_that_is_killed_is_a_lost_process() -> None:
    before = _readers()

    @explained_in_training(small_settings(), step=lambda: 1)
    def lose_readers() -> None:
        for _ in _loader(loader_workers=2).epoch(0):
            for reader in _readers() - before:
                os.kill(reader, signal.SIGKILL)
            time.sleep(10)  # torch raises in the middle of whatever the rank does

    with pytest.raises(LoaderProcessError, match="is killed by signal: Killed") as caught:
        lose_readers()
    assert cause_of(caught.value) is Cause.LOST_PROCESS

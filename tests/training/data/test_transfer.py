"""Batches are copied one item ahead, in order, and each is finished before it is computed on.

Without a GPU the order of calls is tested with a double of the copies; `test_cuda_*` compare real copies on a machine with a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.engines import report_table
from training.config.schema import DataSettings
from training.data.loader import EvalLoader, TrainLoader
from training.data.order import BatchPlan
from training.data.registry import load_dataset
from training.data.transfer import one_ahead
from training.errors import DataError


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
    split = load_dataset(DataSettings()).train
    plan = BatchPlan(size=len(split), global_batch=96, world=1, accumulation=2)
    copied = TrainLoader(split, plan=plan, seed=1, rank=0, loader_workers=loader_workers, copy_to=device)
    plain = TrainLoader(split, plan=plan, seed=1, rank=0)
    for step, expected in zip(copied.epoch(0, 3), plain.epoch(0, 3), strict=True):
        for batch, other in zip(step, expected, strict=True):
            assert batch.inputs.device == device
            assert torch.equal(batch.inputs.cpu(), other.inputs)
            assert torch.equal(batch.targets.cpu(), other.targets)
            assert batch.count == other.count
            assert batch.ids.tolist() == other.ids.tolist()


def test_cuda_copies_overlap_with_computation_and_their_memory_is_not_reused_early() -> None:
    device = gpu()
    split = load_dataset(DataSettings()).train
    loader = EvalLoader(split, batch=100, rank=0, world=1, copy_to=device)
    busy = torch.randn(2048, 2048, device=device)
    sums = []
    for batch in loader:
        for _ in range(20):  # the host runs far ahead of the GPU
            busy = busy @ busy / 2048
        sums.append(batch.inputs.double().sum() + 0 * busy[0, 0].double())
        del batch
    expected = [float(batch.inputs.double().sum()) for batch in EvalLoader(split, batch=100, rank=0, world=1)]
    assert [float(found) for found in sums] == pytest.approx(expected, rel=1e-12)

"""Sample order, hold-out, the division of an epoch, and the fingerprint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from tests.training.data.ids import IdSplit
from training.config.schema import OptionValue
from training.data.fingerprint import fingerprint
from training.data.holdout import hold_out
from training.data.loader import TrainLoader
from training.data.order import BatchPlan, Stream, epoch_order, share, uniforms
from training.data.place import DataPlace

SEEDS = st.integers(0, 2**63 - 1)
EPOCHS = st.integers(0, 10_000)


@st.composite
def plans(draw: st.DrawFn) -> BatchPlan:
    return BatchPlan(
        size=draw(st.integers(1, 300)),
        global_batch=draw(st.integers(1, 64)),
        world=draw(st.sampled_from([1, 2, 4])),
        accumulation=draw(st.integers(1, 4)),
    )


@given(seed=SEEDS, epoch=EPOCHS, size=st.integers(0, 500))
def test_an_epochs_order_is_a_permutation(seed: int, epoch: int, size: int) -> None:
    assert sorted(epoch_order(seed=seed, epoch=epoch, size=size)) == list(range(size))


def test_the_order_differs_between_epochs_and_seeds() -> None:
    orders = {
        tuple(epoch_order(seed=seed, epoch=epoch, size=50).tolist()) for seed in (0, 1, 2**62) for epoch in (0, 1, 2)
    }
    assert len(orders) == 9


def test_order_uniforms_and_streams_never_change_between_versions() -> None:
    """A resumed run must read exactly the remaining samples, and draw what it would have drawn."""
    numbers = {name: stream.value for name, stream in Stream.__members__.items()}
    assert numbers == {"ORDER": 0, "AUGMENTATION": 1, "HOLDOUT": 2, "SYNTHETIC": 3}
    assert epoch_order(seed=0, epoch=0, size=8).tolist() == [0, 2, 1, 5, 4, 3, 6, 7]
    assert epoch_order(seed=7, epoch=3, size=8).tolist() == [2, 5, 7, 3, 0, 6, 4, 1]
    assert uniforms(seed=7, epoch=3, positions=range(5, 7), draws=2).tolist() == [
        [0.4714568159856204, 0.8685619249609409],
        [0.7060575048600621, 0.43264940842089084],
    ]


@given(seed=SEEDS, epoch=EPOCHS, start=st.integers(0, 2**40), length=st.integers(1, 20), draws=st.integers(1, 9))
def test_uniforms_do_not_depend_on_other_positions(seed: int, epoch: int, start: int, length: int, draws: int) -> None:
    together = uniforms(seed=seed, epoch=epoch, positions=range(start, start + length), draws=draws)
    alone = [
        uniforms(seed=seed, epoch=epoch, positions=range(position, position + 1), draws=draws)[0]
        for position in range(start, start + length)
    ]
    np.testing.assert_array_equal(together, alone)
    assert together.shape == (length, draws)
    assert together.dtype == np.float64
    assert ((together >= 0) & (together < 1)).all()


def test_streams_epochs_and_seeds_share_no_uniforms() -> None:
    drawn = [
        uniforms(seed=seed, epoch=epoch, positions=range(50), draws=4, stream=stream)
        for seed in (0, 1)
        for epoch in (0, 1)
        for stream in Stream
    ]
    assert len(np.unique(np.stack(drawn))) == np.stack(drawn).size


@given(total=st.integers(0, 1000), parts=st.integers(1, 16))
def test_shares_are_consecutive_and_the_first_ones_are_larger_by_at_most_one(total: int, parts: int) -> None:
    shares = [share(total, parts=parts, index=index) for index in range(parts)]
    assert [number for part in shares for number in part] == list(range(total))
    sizes = [len(part) for part in shares]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@given(plan=plans())
def test_every_position_is_in_one_step_whatever_the_world_size_and_accumulation(plan: BatchPlan) -> None:
    single = BatchPlan(size=plan.size, global_batch=plan.global_batch, world=1)
    epoch: list[int] = []
    for step in range(plan.steps_per_epoch):
        parts = _micro_batches(plan, step)
        together = [position for part in parts for position in part]
        assert together == list(single.positions(step, rank=0, micro=0))
        assert len(together) == plan.global_count(step)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        epoch += together
    assert epoch == list(range(plan.size))


@given(plan=plans())
def test_half_the_ranks_with_twice_the_accumulation_have_the_same_micro_batches(plan: BatchPlan) -> None:
    """Also in a short last step, which neither divides."""
    doubled = replace(plan, world=2 * plan.world)
    halved = replace(plan, accumulation=2 * plan.accumulation)
    for step in range(plan.steps_per_epoch):
        assert _micro_batches(doubled, step) == _micro_batches(halved, step)


def _micro_batches(plan: BatchPlan, step: int) -> list[range]:
    return [
        plan.positions(step, rank=rank, micro=micro) for rank in range(plan.world) for micro in range(plan.accumulation)
    ]


@given(plan=plans())
def test_only_the_last_step_of_an_epoch_is_short(plan: BatchPlan) -> None:
    counts = [plan.global_count(step) for step in range(plan.steps_per_epoch)]
    assert counts[:-1] == [plan.global_batch] * (len(counts) - 1)
    assert 0 < counts[-1] <= plan.global_batch


@pytest.mark.parametrize("step", [-1, 3])
def test_a_step_outside_the_epoch_is_rejected(step: int) -> None:
    plan = BatchPlan(size=130, global_batch=64, world=2)
    with pytest.raises(ValueError, match=f"step_in_epoch={step}, expected 0 <= step_in_epoch < 3"):
        plan.positions(step, rank=0, micro=0)


LABELS = st.lists(st.integers(0, 6), min_size=1, max_size=200).map(lambda labels: np.array(labels, dtype=np.int64))
FRACTIONS = st.floats(0, 0.99)


@given(labels=LABELS, fraction=FRACTIONS)
def test_every_sample_is_either_kept_or_held_out(labels: NDArray[np.int64], fraction: float) -> None:
    kept, held = hold_out(labels, fraction)
    assert sorted([*kept, *held]) == list(range(len(labels)))


@given(labels=LABELS, fraction=FRACTIONS)
def test_the_fraction_of_each_class_is_rounded_to_a_sample(labels: NDArray[np.int64], fraction: float) -> None:
    _, held = hold_out(labels, fraction)
    for label in range(7):
        size = int((labels == label).sum())
        assert abs(int((labels[held] == label).sum()) - size * fraction) <= 0.5 + 1e-9


def test_the_held_out_samples_never_change_between_versions() -> None:
    """A resumed run must evaluate on the same samples, and must not have trained on them."""
    assert hold_out(np.arange(20) % 2, 0.3)[1].tolist() == [6, 7, 14, 17, 18, 19]


ARRAY = np.arange(12, dtype=np.int64)
BASE = fingerprint({"dataset": "x", "size": 3}, {"a": ARRAY})


def test_every_part_of_the_input_changes_the_fingerprint() -> None:
    description: dict[str, OptionValue] = {"dataset": "x", "size": 3}
    others = [
        fingerprint({"dataset": "y", "size": 3}, {"a": ARRAY}),
        fingerprint({"dataset": "x"}, {"a": ARRAY}),
        fingerprint(description, {"b": ARRAY}),
        fingerprint(description, {"a": ARRAY[::-1]}),
        fingerprint(description, {"a": ARRAY.reshape(3, 4)}),
        fingerprint(description, {"a": ARRAY.view(np.uint64)}),
        fingerprint(description, {"a": ARRAY[:6], "b": ARRAY[6:]}),
    ]
    assert len({BASE, *others}) == 1 + len(others)


def test_key_order_and_memory_layout_do_not_change_the_fingerprint() -> None:
    strided = np.repeat(ARRAY, 2)[::2]
    assert fingerprint({"size": 3, "dataset": "x"}, {"a": strided}) == BASE


def test_the_first_rank_of_those_that_share_samples_records_them() -> None:
    def places(*, world: int, ranks_per_share: int) -> list[tuple[int, int, bool]]:
        ranks = (DataPlace.of(rank=rank, world=world, ranks_per_share=ranks_per_share) for rank in range(world))
        return [(place.rank, place.world, place.is_recorder) for place in ranks]

    assert places(world=3, ranks_per_share=1) == [(0, 3, True), (1, 3, True), (2, 3, True)]
    assert places(world=4, ranks_per_share=2) == [(0, 2, True), (0, 2, False), (1, 2, True), (1, 2, False)]


def test_groups_of_unequal_size_are_an_error() -> None:
    with pytest.raises(ValueError, match="3 ranks per share do not divide a world of 4"):
        DataPlace.of(rank=0, world=4, ranks_per_share=3)


class Sorting(IdSplit):
    """Sorts the ids that it is given, as HDF5 wants them."""

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        ids.sort()
        return super().read(ids, uniforms)


def test_a_split_that_sorts_its_ids_leaves_those_of_the_batch() -> None:
    plan = BatchPlan(size=40, global_batch=16, world=1, accumulation=1)
    plain, sorting = (TrainLoader(one(40), plan=plan, seed=1, rank=0).epoch(0) for one in (IdSplit, Sorting))
    for expected, found in zip(plain, sorting, strict=True):
        assert [[*one.ids] for one in found] == [[*one.ids] for one in expected]

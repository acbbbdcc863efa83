"""Sums along one binary tree: the same bits for any number of ranks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.training.launch.ranks import on_ranks
from tests.training.runs import in_group
from training.communication import tree
from training.communication.tree import TreeSum, tree_all_reduce, tree_sum
from training.launch.task import RankPlace

PARTS = 8
SIZES = [0, 1, 2, 5, 4097]
"""Also those that the ranks cannot halve evenly, or at all."""


def parts_of(size: int) -> list[Tensor]:
    """Numbers of very different size, whose sum depends on the order."""
    generator = torch.Generator().manual_seed(size)
    return [torch.randn(size, generator=generator) * 10**part for part in range(PARTS)]


def test_the_tree_adds_neighbours_first() -> None:
    """2**53 + 1 is 2**53 in float64: from left to right, both sums would be 2**53."""
    assert tree_sum([2.0**53, 1.0, 1.0, 1.0]) == 2.0**53 + 2
    assert tree_sum([2.0**53, 1.0, 1.0, 1.0, 0.0]) == 2.0**53 + 2


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=64), power=st.integers(0, 6))
def test_branches_of_a_power_of_two_make_the_same_tree(values: list[float], power: int) -> None:
    """What a rank sums of its own is a branch, whatever its number of parts."""
    padded = values + [0.0] * (64 - len(values))
    size = 2**power
    branches = [tree_sum(padded[start : start + size]) for start in range(0, 64, size)]
    assert tree_sum(branches) == tree_sum(padded)


def test_lists_that_come_one_by_one_are_summed_along_the_same_tree() -> None:
    for number in (1, 2, 4, 8):
        parts = parts_of(33)[:number]
        found = TreeSum()
        for part in parts:
            found.add([part.clone(), 2 * part])
        first, second = found.total()
        assert torch.equal(first, tree_sum(parts))
        assert torch.equal(second, tree_sum([2 * part for part in parts]))


def _sums(place: RankPlace, *, piece_bytes: int) -> list[Tensor]:
    """The sums over all parts, of which each rank has consecutive ones."""
    torch.set_num_threads(1)
    tree._PIECE_BYTES = piece_bytes
    own = PARTS // place.world
    with in_group(place):
        sums = []
        for size in SIZES:
            total = tree_sum(parts_of(size)[own * place.rank : own * (place.rank + 1)])
            tree_all_reduce(total)
            sums.append(total)
        return sums


@pytest.mark.parametrize("world", [2, 4])
def test_every_rank_has_the_sum_of_one_process_bit_for_bit(world: int) -> None:
    """In messages of four elements, so that halves have several, and different numbers of them."""
    expected = [tree_sum(parts_of(size)) for size in SIZES]
    for sums in on_ranks(world, _sums, piece_bytes=16):
        assert all(map(torch.equal, sums, expected))


def _of_three(place: RankPlace) -> str:
    with in_group(place):
        with pytest.raises(ValueError, match="must be a power of two") as refused:
            tree_all_reduce(torch.zeros(3))
        return str(refused.value)


def test_a_tree_needs_a_power_of_two() -> None:
    assert on_ranks(3, _of_three)[0].startswith("a tree over 3 ranks")

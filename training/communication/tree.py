"""Sums whose rounding does not depend on how many ranks compute them: one binary tree over all parts, nearest neighbours first.

A sum of floating-point numbers depends on its order, and an all-reduce of a library chooses its own for every number of ranks. Here the
order is fixed: with parts 0 to 7 it is ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). If the number of ranks is a power of two and each has
equally many consecutive parts, also a power of two, then a rank's own sum is a branch of that tree (`tree_sum`, `TreeSum`), and the
branches above are those of recursive halving and doubling over the ranks, from the nearest neighbour to the farthest one
(`tree_all_reduce`; Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005, section 4.5).
Addition is commutative bit for bit, so it does not matter which of two ranks adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

_PIECE_BYTES = 4 * 2**20
"""Bytes of a message. While a rank adds one, the next ones are under way."""

SumOverRanks = Callable[[Tensor], object]
"""Sums a tensor over the ranks, in place: `torch.distributed.all_reduce`, or `tree_all_reduce`."""

Summand = TypeVar("Summand", float, Tensor)


def tree_sum(parts: Sequence[Summand]) -> Summand:
    """The sum of the parts, neighbours first; a part without a neighbour moves up.

    Args:
        parts: one or more.
    """
    level = list(parts)
    while len(level) > 1:
        pairs = [one + other for one, other in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(level) - len(level) % 2 :]
    return level[0]


class TreeSum:
    """The sum of lists of tensors that come one by one, in the order of `tree_sum`. The number of lists is a power of two.

    It keeps a branch of each size until its neighbour is there: with n lists, log2(n) of them at a time beside the new one.
    """

    def __init__(self) -> None:
        self._branches: list[tuple[int, list[Tensor]]] = []

    def add(self, tensors: list[Tensor]) -> None:
        """Add a list, whose tensors belong to the sum from now on: they may be changed in place."""
        size = 1
        while self._branches and self._branches[-1][0] == size:
            _, left = self._branches.pop()
            torch._foreach_add_(left, tensors)
            tensors, size = left, 2 * size
        self._branches.append((size, tensors))

    def total(self) -> list[Tensor]:
        """The sums; nothing is kept."""
        ((_, sums),) = self._branches
        self._branches.clear()
        return sums


def tree_all_reduce(values: Tensor, *, scratch: Tensor | None = None) -> None:
    """Sum a tensor over the ranks, in place and in the order of `tree_sum`; a rank sends 2 (1 - 1 / world) of it, as in a ring.

    In round k a rank and its neighbour at distance 2**k exchange halves of the part that both still have, and each adds one (halving); the
    rounds in reverse order give every rank the sums of the others (doubling).

    Args:
        values: contiguous, with as many elements on every rank, on the device of the process group.
        scratch: of the same type and device, one-dimensional, with at least half as many elements; by default it is allocated.

    Raises:
        ValueError: the world is no power of two.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    if world & (world - 1):
        raise ValueError(f"a tree over {world} ranks: the world must be a power of two")
    part = values.view(-1)
    received = torch.empty_like(part[: -(-len(part) // 2)]) if scratch is None else scratch
    rounds: list[tuple[int, Tensor, Tensor]] = []
    distance = 1
    while distance < world:
        low, high = part[: len(part) // 2], part[len(part) // 2 :]
        own, given = (low, high) if rank & distance == 0 else (high, low)
        rounds.append((rank ^ distance, own, given))
        incoming = received[: len(own)]
        for works, mine, theirs in zip_longest(
            _start_exchange(given, incoming, peer=rank ^ distance), _pieces(own), _pieces(incoming)
        ):
            _wait(works)
            if mine is not None:
                mine.add_(theirs)
        part = own
        distance *= 2
    for peer, own, given in reversed(rounds):
        for works in _start_exchange(own, given, peer=peer):
            _wait(works)


def _start_exchange(sent: Tensor, received: Tensor, *, peer: int) -> list[list[dist.Work]]:
    """Exchange tensors with a peer piece by piece, all of them at once; what to wait for, by piece.

    The halves of an odd number of elements differ by one, and so maybe in their pieces.
    """
    under_way = []
    for outgoing, incoming in zip_longest(_pieces(sent), _pieces(received)):
        operations = [] if outgoing is None else [dist.P2POp(dist.isend, outgoing, peer)]
        if incoming is not None:
            operations.append(dist.P2POp(dist.irecv, incoming, peer))
        under_way.append(dist.batch_isend_irecv(operations))
    return under_way


def _pieces(values: Tensor) -> list[Tensor]:
    length = _PIECE_BYTES // values.element_size()
    return [values[start : start + length] for start in range(0, len(values), length)]


def _wait(works: list[dist.Work]) -> None:
    for work in works:
        work.wait()

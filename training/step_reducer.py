"""The small all-reduce beside that of the gradients: what all ranks must agree on, for a window of steps at once.

Of each step it carries a handful of float64 numbers: the objective's sums, their weight, the samples and each rank's own time; of the
window, the votes to stop and what else a rank asks of all, such as a profile. Ranks therefore stop at the same step. One all-reduce per
step is expensive for short steps: through gloo it takes 0.2 ms of CPU on each rank, 4 % of a small network's step. So steps that are
shorter than `WINDOW_SECONDS` share a window; a longer one is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import torch
import torch.distributed as dist

WINDOW_SECONDS = 0.25
"""Upper bound of a window, unless steps become slower within it: how late metrics are, and how soon a stop request is seen."""


@dataclass(frozen=True, kw_only=True)
class StepSums:
    """Sums of a step over all ranks.

    Attributes:
        sums: the objective's sums over the global batch, the loss first.
        weight: the sum of the weights in the mean loss.
        samples: samples in the global batch.
        rank_seconds: per rank, seconds it spent on its own samples, without waiting for peers.
    """

    sums: list[float]
    weight: float
    samples: int
    rank_seconds: list[float]


@dataclass(frozen=True, kw_only=True)
class Window:
    """The result of a reduction.

    Attributes:
        steps: the sums of each step since the previous window, oldest first.
        stop_votes: how many ranks want to stop.
        asked: the sums of what the ranks asked for, in the order of `StepReducer.reduce`.
    """

    steps: list[StepSums]
    stop_votes: int
    asked: list[int] = field(default_factory=list)


class StepReducer:
    """Collects the numbers of a rank's steps and sums them over the ranks.

    Every rank has to call `add` and `reduce` in the same order. `is_due` has the same value on all ranks.
    """

    def __init__(self, *, rank: int, world: int, device: torch.device) -> None:
        self._rank = rank
        self._world = world
        self._device = device
        self._steps: list[list[float]] = []
        self._seconds = 0.0
        self._due = 1

    @property
    def is_due(self) -> bool:
        """Whether the window is full."""
        return len(self._steps) >= self._due

    def add(self, *, sums: Sequence[float], weight: float, samples: int, own_seconds: float, seconds: float) -> None:
        """Add a step of this rank: sums and weight of its own samples, the seconds it spent on them, and those of the whole step."""
        rank_seconds = [0.0] * self._world
        rank_seconds[self._rank] = own_seconds
        self._steps.append([*sums, weight, samples, *rank_seconds])
        self._seconds += seconds

    def reduce(self, *, wants_stop: bool, asks: Sequence[int] = ()) -> Window:
        """Close the window, which has at least one step: sum this rank's numbers, its vote and what it asks for with its peers'."""
        # Only rank 0's seconds count, so that the next window has as many steps on every rank.
        head = [wants_stop, *asks, self._seconds if self._rank == 0 else 0.0]
        totals = torch.tensor([*head, *chain(*self._steps)], dtype=torch.float64, device=self._device)
        if self._world > 1:
            dist.all_reduce(totals)
        summed: list[float] = totals.tolist()
        (stop_votes, *asked, seconds), numbers = summed[: len(head)], summed[len(head) :]
        self._due = max(1, int(WINDOW_SECONDS * len(self._steps) / seconds))
        width = len(self._steps[0])
        self._steps.clear()
        self._seconds = 0.0
        return Window(
            steps=[self._step_sums(numbers[start : start + width]) for start in range(0, len(numbers), width)],
            stop_votes=round(stop_votes),
            asked=[round(number) for number in asked],
        )

    def _step_sums(self, numbers: list[float]) -> StepSums:
        *sums, weight, samples = numbers[: -self._world]
        return StepSums(sums=sums, weight=weight, samples=round(samples), rank_seconds=numbers[-self._world :])

"""The small all-reduce beside that of the gradients: what all ranks must agree on, for a window of steps at once.

Of each step it carries a handful of float64 numbers: loss sum, right answers, samples and each rank's own time; of the window, the votes
to stop. Ranks therefore stop at the same step. A message of its own for each step would be dear where steps are short: its way through
gloo and back takes 0.2 ms of CPU from each rank, 4 % of a small network's step. So steps that are shorter than
`WINDOW_SECONDS` go together; a longer one is a window of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import torch
import torch.distributed as dist

WINDOW_SECONDS = 0.25
"""What a window lasts at most, unless steps become slower within it: how late metrics are, and how soon a stop is heard."""


@dataclass(frozen=True, kw_only=True)
class StepSums:
    """Sums of a step over all ranks.

    Attributes:
        loss_sum: sum of the per-sample losses of the global batch.
        correct: samples classified rightly.
        samples: samples in the global batch.
        rank_seconds: per rank, seconds it spent on its own samples, waiting for peers left out.
    """

    loss_sum: float
    correct: int
    samples: int
    rank_seconds: list[float]


@dataclass(frozen=True, kw_only=True)
class Window:
    """What the ranks agreed on: the sums of each step since the window before, oldest first, and how many ranks want to stop."""

    steps: list[StepSums]
    stop_votes: int


class Pulse:
    """Gathers the numbers of a rank's steps and exchanges them for their sums.

    Every rank has to call `add` and `exchange` in the same order. `is_due` has the same value on all.
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
        """Whether the window is as long as it should be."""
        return len(self._steps) >= self._due

    def add(self, *, loss_sum: float, correct: int, samples: int, own_seconds: float, seconds: float) -> None:
        """Add a step of this rank: sums over its own samples, the seconds it spent on them alone, and those of the whole step."""
        rank_seconds = [0.0] * self._world
        rank_seconds[self._rank] = own_seconds
        self._steps.append([loss_sum, correct, samples, *rank_seconds])
        self._seconds += seconds

    def exchange(self, *, wants_stop: bool) -> Window:
        """Close the window, which has a step or more: sum this rank's numbers and its vote with its peers'."""
        # Of the window's seconds only rank 0's count, so that the next one has as many steps on every rank.
        head = [wants_stop, self._seconds if self._rank == 0 else 0.0]
        sums = torch.tensor([*head, *chain(*self._steps)], dtype=torch.float64, device=self._device)
        if self._world > 1:
            dist.all_reduce(sums)
        stop_votes, seconds, *numbers = sums.tolist()
        self._due = max(1, int(WINDOW_SECONDS * len(self._steps) / seconds))
        self._steps.clear()
        self._seconds = 0.0
        width = 3 + self._world
        return Window(
            steps=[_step_sums(*numbers[start : start + width]) for start in range(0, len(numbers), width)],
            stop_votes=round(stop_votes),
        )


def _step_sums(loss_sum: float, correct: float, samples: float, *rank_seconds: float) -> StepSums:
    return StepSums(loss_sum=loss_sum, correct=round(correct), samples=round(samples), rank_seconds=list(rank_seconds))

"""The small all-reduce beside that of the gradients: what all ranks must agree on, for a window of steps at once.

Of each step it carries a handful of float64 numbers: the objective's sums, their weight, the samples and each rank's own time; of the
window, the votes to stop, what each rank measured of itself, and what else a rank asks of all, such as a profile. Ranks therefore stop
at the same step. One all-reduce per step is expensive for short steps: through gloo it takes 0.2 ms of CPU on each rank, 4 % of a small
network's step. So steps that are shorter than `WINDOW_SECONDS` share a window; a longer one is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

import torch
import torch.distributed as dist

from training.communication.tree import SumOverRanks
from training.gpu_usage import GpuProbe, GpuUsage

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
class RankUsage:
    """What a rank measured of itself in a window.

    Attributes:
        communication_seconds: exposed communication of its steps.
        pass_order: see `Strategy.pass_order`; the same on every rank, or their weights are mixed up.
        gpu: at the end of the window; None on a CPU.
    """

    communication_seconds: float
    pass_order: int
    gpu: GpuUsage | None


@dataclass(frozen=True, kw_only=True)
class Window:
    """The result of a reduction.

    Attributes:
        steps: the sums of each step since the previous window, oldest first.
        ranks: what each rank measured of itself, by rank.
        seconds: time of the steps on rank 0.
        stop_votes: ranks that vote to stop.
        asked: the sums of what the ranks asked for, in the order of `StepReducer.reduce`.
    """

    steps: list[StepSums]
    ranks: list[RankUsage]
    seconds: float
    stop_votes: int
    asked: list[int] = field(default_factory=list)


class StepReducer:
    """Collects the numbers of a rank's steps and sums them over the ranks.

    Every rank has to call `add` and `reduce` in the same order. `is_due` has the same value on all ranks.
    """

    def __init__(
        self, *, rank: int, world: int, device: torch.device, sum_over_ranks: SumOverRanks = dist.all_reduce
    ) -> None:
        self._gpu = GpuProbe(device) if device.type == "cuda" else None
        self._communication_seconds = 0.0
        self._sum_over_ranks = sum_over_ranks
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

    def add(
        self,
        *,
        sums: Sequence[float],
        weight: float,
        samples: int,
        own_seconds: float,
        communication_seconds: float,
        seconds: float,
    ) -> None:
        """Add a step of this rank.

        Args:
            sums: the objective's, over its own samples.
            weight: of these samples.
            samples: their number.
            own_seconds: that it spent on them without waiting for peers.
            communication_seconds: that it waited for its peers' gradients.
            seconds: of the whole step.
        """
        self._communication_seconds += communication_seconds
        rank_seconds = [0.0] * self._world
        rank_seconds[self._rank] = own_seconds
        self._steps.append([*sums, weight, samples, *rank_seconds])
        self._seconds += seconds

    def reduce(self, *, wants_stop: bool, asks: Sequence[int] = (), pass_order: int = 0) -> Window:
        """Close the window, which has at least one step: sum this rank's numbers, its vote and what it asks for with its peers'."""
        # Only rank 0's seconds count, so that the next window has as many steps on every rank.
        head = [wants_stop, *asks, self._seconds if self._rank == 0 else 0.0]
        own = self._own_usage(pass_order)
        usage = [0.0] * len(own) * self._world
        usage[len(own) * self._rank : len(own) * (self._rank + 1)] = own
        totals = torch.tensor([*head, *usage, *chain(*self._steps)], dtype=torch.float64, device=self._device)
        if self._world > 1:
            self._sum_over_ranks(totals)
        summed = iter(totals.tolist())
        stop_votes, *asked, seconds = islice(summed, len(head))
        usage = list(islice(summed, len(usage)))
        numbers = list(summed)
        self._due = max(1, int(WINDOW_SECONDS * len(self._steps) / seconds))
        width = len(self._steps[0])
        self._steps.clear()
        self._seconds = self._communication_seconds = 0.0
        return Window(
            steps=[self._step_sums(numbers[start : start + width]) for start in range(0, len(numbers), width)],
            ranks=[_rank_usage(usage[start : start + len(own)]) for start in range(0, len(usage), len(own))],
            seconds=seconds,
            stop_votes=round(stop_votes),
            asked=[round(number) for number in asked],
        )

    def _own_usage(self, pass_order: int) -> list[float]:
        """As many numbers on every rank, because all compute on the same type of device."""
        if self._gpu is None:
            return [self._communication_seconds, pass_order]
        gpu = self._gpu.read()
        return [self._communication_seconds, pass_order, gpu.utilization, gpu.allocated_bytes, gpu.reserved_bytes]

    def _step_sums(self, numbers: list[float]) -> StepSums:
        *sums, weight, samples = numbers[: -self._world]
        return StepSums(sums=sums, weight=weight, samples=round(samples), rank_seconds=numbers[-self._world :])


def _rank_usage(numbers: Sequence[float]) -> RankUsage:
    communication, pass_order, *gpu = numbers
    if not gpu:
        return RankUsage(communication_seconds=communication, pass_order=round(pass_order), gpu=None)
    utilization, allocated, reserved = gpu
    usage = GpuUsage(utilization=utilization, allocated_bytes=allocated, reserved_bytes=reserved)
    return RankUsage(communication_seconds=communication, pass_order=round(pass_order), gpu=usage)

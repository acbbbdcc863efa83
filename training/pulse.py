"""The one small all-reduce of a step: sums that every rank must agree on, overlapped with the next step's work.

Each optimizer step puts a handful of float64 numbers on the wire: loss sum, right answers, samples, votes to stop and each rank's own
time. The reduction of step k is started when step k ends and read when step k+1 has computed, so that waiting for it costs next to
nothing, and a decision taken on it (to stop) is taken by all ranks at the same step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

_FIXED = 4


@dataclass(frozen=True, kw_only=True)
class PulseSums:
    """Sums over all ranks.

    Attributes:
        loss_sum: sum of the per-sample losses of the global batch.
        correct: samples classified rightly.
        samples: samples in the global batch.
        stop_votes: ranks that were asked to stop.
        rank_seconds: per rank, seconds it spent on its own samples, waiting for peers left out.
    """

    loss_sum: float
    correct: int
    samples: int
    stop_votes: int
    rank_seconds: list[float]


class Pulse:
    """Starts a reduction at the end of a step and hands its result out later."""

    def __init__(self, *, rank: int, world: int, device: torch.device) -> None:
        self._rank = rank
        self._world = world
        self._values = torch.zeros(_FIXED + world, dtype=torch.float64, device=device)
        self._work: dist.Work | None = None

    def start(self, *, loss_sum: Tensor, correct: Tensor, samples: int, wants_stop: bool, seconds: float) -> None:
        """Begin to sum this rank's numbers with its peers'. `loss_sum` and `correct` are scalars on the rank's device."""
        values = self._values
        values.zero_()
        values[0] = loss_sum
        values[1] = correct
        values[2] = samples
        values[3] = wants_stop
        values[_FIXED + self._rank] = seconds
        if self._world > 1:
            self._work = dist.all_reduce(values, async_op=True)

    def wait(self) -> PulseSums:
        """The sums of the reduction started last."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        loss_sum, correct, samples, votes, *seconds = self._values.tolist()
        return PulseSums(
            loss_sum=loss_sum,
            correct=round(correct),
            samples=round(samples),
            stop_votes=round(votes),
            rank_seconds=seconds,
        )

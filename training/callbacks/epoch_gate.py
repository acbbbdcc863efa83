"""Holds a run between two epochs until somebody lets it go on, such as a search that decides by the last evaluation."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.distributed as dist

from training.callbacks.callback import Callback
from training.loop import Loop


class EpochGate(Protocol):
    """Decides for rank 0; every other rank has a gate too, which is not asked."""

    def may_begin(self, epoch: int) -> bool:
        """Return when an epoch, counted from 1, may begin, or false when the run is to save and stop instead."""
        ...


class GateKeeper(Callback):
    """Waits at the gate of rank 0, whose peers wait in a collective.

    By then the epoch before has been evaluated, and its checkpoint taken.
    """

    def __init__(self, gate: EpochGate, *, rank: int, world: int, device: torch.device) -> None:
        self._gate = gate
        self._rank = rank
        self._world = world
        self._device = device

    def stops_before_epoch(self, loop: Loop) -> bool:
        """Whether rank 0 was told to stop."""
        stops = self._rank == 0 and not self._gate.may_begin(loop.progress.epoch)
        if self._world == 1:
            return stops
        answer = torch.tensor([stops], dtype=torch.int32, device=self._device)
        dist.broadcast(answer, src=0)
        return bool(answer)

"""Models of a user's own that go wrong at a given step. Otherwise each is `simple_cnn`, weight for weight."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch.distributed as dist
from torch import Tensor

from training.checkpoint.store import FOLDER, committed_steps
from training.data.types import SampleSpec
from training.models.simple_cnn import SimpleCnn


class _Faulty(SimpleCnn):
    """Has an accident in the forward pass of one training step, on one rank, once in the life of the file `trace`.

    With `run`, a run's folder, it first waits for a checkpoint there: storage may be slow.
    """

    def __init__(self, spec: SampleSpec, *, step: int, rank: int, trace: str, run: str | None = None) -> None:
        super().__init__(channels=spec.shape[0], classes=spec.classes, width=16, dropout=0.25)
        self._steps_left = step
        self._rank = rank
        self._trace = Path(trace)
        self._run = run

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self._steps_left -= 1
            own_rank = dist.get_rank() if dist.is_initialized() else 0
            if self._steps_left == 0 and own_rank == self._rank and not self._trace.exists():
                self._trace.touch()
                while self._run is not None and not committed_steps(Path(self._run) / FOLDER):
                    time.sleep(0.01)
                self.have_accident()
        return super().forward(inputs)

    def have_accident(self) -> None:
        raise NotImplementedError


class _Killed(_Faulty):
    def have_accident(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class _Raising(_Faulty):
    def have_accident(self) -> None:
        raise RuntimeError("the user's own mistake")


class _Stuck(_Faulty):
    def have_accident(self) -> None:
        while True:
            time.sleep(60)


def killed(spec: SampleSpec, *, step: int, rank: int, trace: str, run: str | None = None) -> _Faulty:
    """A model whose rank `rank` is killed in its `step`-th forward pass of a start."""
    return _Killed(spec, step=step, rank=rank, trace=trace, run=run)


def raising(spec: SampleSpec, *, step: int, rank: int, trace: str, run: str | None = None) -> _Faulty:
    """A model whose rank `rank` raises in its `step`-th forward pass of a start."""
    return _Raising(spec, step=step, rank=rank, trace=trace, run=run)


def stuck(spec: SampleSpec, *, step: int, rank: int, trace: str, run: str | None = None) -> _Faulty:
    """A model whose rank `rank` never comes back from its `step`-th forward pass of a start."""
    return _Stuck(spec, step=step, rank=rank, trace=trace, run=run)

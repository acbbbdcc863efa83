"""Models that fail at a given step, and otherwise equal `simple_cnn`, weight for weight. Settings name them in lower case."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import torch
import torch.distributed as dist
from torch import Tensor

from training.checkpoint.store import FOLDER, committed_steps
from training.data.types import SampleSpec
from training.models.simple_cnn import SimpleCnn


class _Model(SimpleCnn):
    def __init__(self, spec: SampleSpec) -> None:
        super().__init__(channels=spec.shape[0], classes=spec.outputs, width=16, dropout=0.25)


class _Faulty(_Model):
    """Fails at the end of the forward pass of one training step on one rank, unless the file `trace` exists, which it creates.

    It cannot create it in a folder that does not exist: then every attempt fails. With `run`, a run's folder, it first waits for a
    committed checkpoint, because storage may be slow.
    """

    factor = 1.0
    """Of the logits of the step, if the process goes on."""

    def __init__(self, spec: SampleSpec, *, step: int, rank: int, trace: str, run: str | None = None) -> None:
        super().__init__(spec)
        self._steps_left = step
        self._rank = rank
        self._trace = Path(trace)
        self._run = run

    def _classify(self, features: Tensor) -> Tensor:
        logits = super()._classify(features)
        if self.training and torch.is_grad_enabled():  # not in the looks before training
            self._steps_left -= 1
            own_rank = dist.get_rank() if dist.is_initialized() else 0
            if self._steps_left == 0 and own_rank == self._rank and not self._trace.exists():
                if self._trace.parent.exists():
                    self._trace.touch()
                while self._run is not None and not committed_steps(Path(self._run) / FOLDER):
                    time.sleep(0.01)
                self.fail()
                return logits * self.factor
        return logits

    def fail(self) -> None:
        raise NotImplementedError


class Killed(_Faulty):
    """Its rank is killed."""

    def fail(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Orphaned(_Faulty):
    """Its rank loses its Ray worker: the agent is killed, and with it the fork server and this process."""

    def fail(self) -> None:
        agent = psutil.Process().parent()
        assert agent is not None
        above = agent.parent()
        assert above is not None
        above.kill()
        time.sleep(60)


class Raising(_Faulty):
    """Its rank raises."""

    def fail(self) -> None:
        raise RuntimeError("raised by the model")


class Crashing(_Faulty):
    """Its rank dies of SIGSEGV."""

    def fail(self) -> None:
        ctypes.string_at(0)


class Exiting(_Faulty):
    """Its rank exits, without cleaning up."""

    def __init__(
        self, spec: SampleSpec, *, step: int, rank: int, trace: str, run: str | None = None, code: int = 0
    ) -> None:
        super().__init__(spec, step=step, rank=rank, trace=trace, run=run)
        self._code = code

    def fail(self) -> None:
        os._exit(self._code)


class Leaving(_Faulty):
    """Its rank calls `sys.exit(0)`."""

    def fail(self) -> None:
        sys.exit(0)


class Stuck(_Faulty):
    """Its rank hangs."""

    def fail(self) -> None:
        while True:
            time.sleep(60)


class Hogging(_Faulty):
    """Its rank hangs in native code that stops all of Python."""

    def fail(self) -> None:
        ctypes.PyDLL(None).sleep(600)  # PyDLL keeps the interpreter's lock


class NotFinite(_Faulty):
    """Its loss is NaN."""

    factor = float("nan")

    def fail(self) -> None:
        """Its logits fail."""


killed, orphaned, raising, crashing = Killed, Orphaned, Raising, Crashing
exiting, leaving, stuck, hogging, not_finite = Exiting, Leaving, Stuck, Hogging, NotFinite


def aborting_at_exit(spec: SampleSpec, *, trace: str) -> SimpleCnn:
    """A model whose rank 0 aborts while its process exits, after it has created the file `trace`."""

    def abort() -> None:
        Path(trace).touch()
        os.abort()

    if os.environ.get("RANK", "0") == "0":
        atexit.register(abort)
    return _Model(spec)

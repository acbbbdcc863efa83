"""Models that fail at a given step, and otherwise equal `simple_cnn`, weight for weight."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import torch.distributed as dist
from torch import Tensor

from training.checkpoint.store import FOLDER, committed_steps
from training.data.types import SampleSpec
from training.models.simple_cnn import SimpleCnn


class _Faulty(SimpleCnn):
    """Fails at the end of the forward pass of one training step on one rank, unless the file `trace` exists, which it creates.

    It cannot create it in a folder that does not exist: then every attempt fails. With `run`, a run's folder, it first waits for a
    committed checkpoint, because storage may be slow.
    """

    def __init__(self, spec: SampleSpec, *, step: int, rank: int, trace: str, run: str | None = None) -> None:
        super().__init__(channels=spec.shape[0], classes=spec.outputs, width=16, dropout=0.25)
        self._steps_left = step
        self._rank = rank
        self._trace = Path(trace)
        self._run = run

    def _classify(self, features: Tensor) -> Tensor:
        if self.training:
            self._steps_left -= 1
            own_rank = dist.get_rank() if dist.is_initialized() else 0
            if self._steps_left == 0 and own_rank == self._rank and not self._trace.exists():
                if self._trace.parent.exists():
                    self._trace.touch()
                while self._run is not None and not committed_steps(Path(self._run) / FOLDER):
                    time.sleep(0.01)
                self.fail()
        return super()._classify(features)

    def fail(self) -> None:
        raise NotImplementedError


class _Paced(SimpleCnn):
    """Takes its time in each training step until the file `hurry` exists."""

    def __init__(self, spec: SampleSpec, *, hurry: str) -> None:
        super().__init__(channels=spec.shape[0], classes=spec.outputs, width=16, dropout=0.25)
        self._hurry = Path(hurry)

    def _classify(self, features: Tensor) -> Tensor:
        if self.training and not self._hurry.exists():
            time.sleep(0.05)
        return super()._classify(features)


def paced(spec: SampleSpec, *, hurry: str) -> _Paced:
    """A model whose steps take at least 50 ms until the file `hurry` exists."""
    return _Paced(spec, hurry=hurry)


class _Killed(_Faulty):
    def fail(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class _Orphaned(_Faulty):
    def fail(self) -> None:
        """Kill the agent of this rank, and with it the fork server and this process."""
        agent = psutil.Process().parent()
        assert agent is not None
        above = agent.parent()
        assert above is not None
        above.kill()
        time.sleep(60)


class _Raising(_Faulty):
    def fail(self) -> None:
        raise RuntimeError("raised by the model")


class _Crashing(_Faulty):
    def fail(self) -> None:
        ctypes.string_at(0)


class _Exiting(_Faulty):
    code = 0

    def fail(self) -> None:
        os._exit(self.code)


class _Leaving(_Faulty):
    def fail(self) -> None:
        sys.exit(0)


class _Stuck(_Faulty):
    def fail(self) -> None:
        while True:
            time.sleep(60)


class _Hogging(_Faulty):
    def fail(self) -> None:
        ctypes.PyDLL(None).sleep(600)  # PyDLL keeps the interpreter's lock


def hogging(spec: SampleSpec, *, step: int, rank: int, trace: str, run: str | None = None) -> _Faulty:
    """A model whose rank `rank` hangs in native code that stops all of Python in its `step`-th forward pass."""
    return _Hogging(spec, step=step, rank=rank, trace=trace, run=run)


def killed(spec: SampleSpec, *, step: int, rank: int, trace: str, run: str | None = None) -> _Faulty:
    """A model whose rank `rank` is killed in its `step`-th forward pass."""
    return _Killed(spec, step=step, rank=rank, trace=trace, run=run)


def orphaned(spec: SampleSpec, *, step: int, rank: int, trace: str, run: str | None = None) -> _Faulty:
    """A model whose rank `rank` loses its Ray worker in its `step`-th forward pass."""
    return _Orphaned(spec, step=step, rank=rank, trace=trace, run=run)


def raising(spec: SampleSpec, *, step: int, rank: int, trace: str, run: str | None = None) -> _Faulty:
    """A model whose rank `rank` raises in its `step`-th forward pass."""
    return _Raising(spec, step=step, rank=rank, trace=trace, run=run)


def stuck(spec: SampleSpec, *, step: int, rank: int, trace: str, run: str | None = None) -> _Faulty:
    """A model whose rank `rank` hangs in its `step`-th forward pass."""
    return _Stuck(spec, step=step, rank=rank, trace=trace, run=run)


def crashing(spec: SampleSpec, *, step: int, rank: int, trace: str, run: str | None = None) -> _Faulty:
    """A model whose rank `rank` dies of SIGSEGV in its `step`-th forward pass."""
    return _Crashing(spec, step=step, rank=rank, trace=trace, run=run)


def exiting(spec: SampleSpec, *, step: int, rank: int, trace: str, run: str | None = None, code: int = 0) -> _Faulty:
    """A model whose rank `rank` exits, without cleaning up, in its `step`-th forward pass."""
    model = _Exiting(spec, step=step, rank=rank, trace=trace, run=run)
    model.code = code
    return model


def leaving(spec: SampleSpec, *, step: int, rank: int, trace: str, run: str | None = None) -> _Faulty:
    """A model whose rank `rank` calls `sys.exit(0)` in its `step`-th forward pass."""
    return _Leaving(spec, step=step, rank=rank, trace=trace, run=run)


def aborting_at_exit(spec: SampleSpec, *, trace: str) -> SimpleCnn:
    """A model whose rank 0 aborts while its process exits, after it has created the file `trace`."""

    def abort() -> None:
        Path(trace).touch()
        os.abort()

    if os.environ.get("RANK", "0") == "0":
        atexit.register(abort)
    return SimpleCnn(channels=spec.shape[0], classes=spec.outputs, width=16, dropout=0.25)

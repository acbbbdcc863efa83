"""The two programs that are compared, as processes that train, are hit by faults, and go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import psutil

from observability.benchmarks.faults.marks import MARKS, Mark, decode, newest_step
from observability.event_log import LogReader, select
from observability.runlog import RunLogReader, Step, TrainingStarted, WorkersFailed
from training.config.load import render
from training.config.schema import TrainingSettings

T = TypeVar("T")

PATIENCE_S = 240.0
"""Timeout of everything that is waited for."""

_POLL_S = 0.02
_END_S = 30.0
_ROOT = Path(__file__).resolve().parents[3]
_RUN = "run"


class Side(ABC):
    """A program that trains until the block over it ends.

    Attributes:
        name: of the side, for messages.
    """

    name: str

    def __init__(self, settings: TrainingSettings, folder: Path) -> None:
        """Start it; `folder` exists and is empty."""
        self._folder = folder
        self._marks: list[Mark] = []
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self._process = psutil.Popen(
                [sys.executable, "-m", *self._command(settings)],
                cwd=_ROOT,
                env={**os.environ, **self._environment()},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @abstractmethod
    def _command(self, settings: TrainingSettings) -> Sequence[str]:
        """The module and its arguments."""

    @abstractmethod
    def _read(self) -> Sequence[Mark]:
        """What happened since the last call."""

    @abstractmethod
    def rank(self, number: int) -> int:
        """Process id of a rank that trains; on this machine."""

    def _environment(self) -> Mapping[str, str]:
        """Variables in addition to those of this process."""
        return {}

    @property
    def marks(self) -> Sequence[Mark]:
        """What has happened so far."""
        self._marks += self._read()
        return self._marks

    def wait_for_step(self, step: int) -> None:
        """Wait until a step has ended.

        Raises:
            RuntimeError: the program has ended.
            TimeoutError: it takes too long.
        """
        self.wait_for(lambda: newest_step(self.marks) >= step or None)

    def wait_for(self, what: Callable[[], T | None]) -> T:
        """Wait for something; returns it.

        Raises:
            RuntimeError: the program has ended.
            TimeoutError: it takes too long.
        """
        deadline = time.monotonic() + PATIENCE_S
        while (found := what()) is None:
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with status {self._process.returncode}:\n{self._said()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: not within {PATIENCE_S:g} s\n{self._said()}")
            time.sleep(_POLL_S)
        return found

    def _said(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")[-3000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Interrupt it as a user does, and kill what is left of it."""
        family = self._process.children(recursive=True) if self._process.is_running() else []
        with suppress(psutil.NoSuchProcess):
            self._process.send_signal(signal.SIGINT)
        with suppress(psutil.TimeoutExpired):
            self._process.wait(_END_S)
        for process in (self._process, *family):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()


class Platform(Side):
    """`python -m training train`."""

    name = "platform"

    def _command(self, settings: TrainingSettings) -> Sequence[str]:
        config = self._folder / "settings.yaml"
        config.write_text(render(settings), encoding="utf-8")
        self._reader = RunLogReader(self._folder / _RUN)
        place = ["--set", f"run.directory={self._folder}", "--name", _RUN]
        return ["training", "train", "--config", str(config), *place]

    def _read(self) -> Sequence[Mark]:
        found = list[Mark]()
        for event in self._reader.read_new():
            match event:
                case TrainingStarted():
                    found.append(Mark(what="start", time=event.time, step=event.start_step))
                case Step():
                    found.append(Mark(what="step", time=event.time, step=event.step))
                case WorkersFailed():
                    found.append(Mark(what="failure", time=event.time))
        return found

    def rank(self, number: int) -> int:
        """Process id of a rank that trains; on this machine."""
        return self.wait_for(lambda: self._named(f"rtp-rank-{number}"))

    def _named(self, name: str) -> int | None:
        for process in self._process.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if process.name() == name:
                    return int(process.pid)
        return None


class Documented(Side):
    """`ray_fault_tolerant`."""

    name = "Ray's pattern"

    def _command(self, settings: TrainingSettings) -> Sequence[str]:
        file = self._folder / "settings.json"
        file.write_text(settings.model_dump_json(), encoding="utf-8")
        self._reader = LogReader(self._folder / MARKS, decode)
        return ["observability.benchmarks.faults.ray_fault_tolerant", str(file), str(self._folder)]

    def _environment(self) -> Mapping[str, str]:
        # Ray gives up a start after 30 s, which a busy machine exceeds.
        return {"RAY_AUTH_MODE": "disabled", "RAY_raylet_start_wait_time_s": f"{PATIENCE_S:g}"}

    def _read(self) -> Sequence[Mark]:
        return select(self._reader.read_new(), Mark)

    def rank(self, number: int) -> int:
        """Process id of a rank that trains; on this machine."""
        return int((self._folder / f"rank-{number}").read_text(encoding="ascii"))


def alternately(
    rounds: int, measure: Callable[[type[Side], int, Path], T], scratch: Path, *sides: type[Side]
) -> list[list[T]]:
    """Measure each side once per round; every other round goes backwards.

    Args:
        rounds: number of rounds.
        measure: called with a side, the number of the round, and an empty folder.
        scratch: for the folders.
        sides: what to measure.

    Returns:
        For each side its results, one per round.
    """
    results: dict[type[Side], list[T]] = {side: [] for side in sides}
    for number in range(rounds):
        print(f"  round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for side in sides if number % 2 == 0 else reversed(sides):
            results[side].append(measure(side, number, Path(tempfile.mkdtemp(dir=scratch))))
    return list(results.values())

"""A driver in a process of its own, observed through the run's log and stopped by real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from observability.event_log import LogReader
from observability.runlog import FILE_NAME, CheckpointCommitted, Event, RunLogReader
from training.config.load import render
from training.config.schema import TrainingSettings

ROOT = Path(__file__).resolve().parents[3]
_MARKER = "RTP_TEST_DRIVER"

PATIENCE = 240.0
"""Timeout, in seconds, of events that take a few seconds on an idle machine."""


@dataclass(frozen=True)
class Ended:
    """Exit status of a driver (negative for a signal number) and its output."""

    status: int
    out: str
    err: str


class Driver:
    """`python -m training …` in a process group of its own, as a shell starts it.

    All its descendants inherit a marker in their environment, which finds them even after they are reparented.
    """

    MODULE = "training"
    LOG = FILE_NAME

    def __init__(
        self, *arguments: str, run: Path, prefix: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        """Start it."""
        self.run = run
        self._marker = uuid.uuid4().hex
        events = run / self.LOG
        self._reader = self.read_log(offset=events.stat().st_size if events.exists() else 0)
        self._events: list[Event] = []
        # SPT_NOENV: otherwise Ray's workers overwrite their environment, and the marker, with their process title.
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", self.MODULE, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **(environment or {}), _MARKER: self._marker, "SPT_NOENV": "1"},
            process_group=0,
        )

    def read_log(self, *, offset: int = 0) -> LogReader:
        """A reader of its log."""
        return RunLogReader(self.run, offset=offset)

    def wait_for(self, has_happened: Callable[[Event], bool], *, timeout: float = PATIENCE) -> bool:
        """Wait for an event of this driver; False if the driver exited without it."""
        deadline = time.monotonic() + timeout
        while True:
            is_over = self.process.poll() is not None
            for event in self._reader.read_new():
                self._events.append(event)
                if has_happened(event):
                    return True
            if is_over:
                return False
            assert time.monotonic() < deadline, f"not within {timeout} s; last events: {self._events[-3:]}"
            time.sleep(0.01)

    def interrupt(self) -> None:
        """Send SIGINT to the whole process group, like Ctrl-C in a terminal."""
        os.killpg(self.process.pid, signal.SIGINT)

    def terminate(self) -> None:
        """Send SIGTERM to the driver, like a scheduler."""
        self.process.terminate()

    def end(self, *, timeout: float = PATIENCE) -> Ended:
        """Wait for the driver to exit."""
        out, err = self.process.communicate(timeout=timeout)
        return Ended(self.process.returncode, out, err)

    def kill(self) -> None:
        """Send SIGKILL to the driver only."""
        self.process.kill()
        self.process.communicate()

    def descendants(self) -> list[psutil.Process]:
        """Its running descendants."""
        return [process for process in psutil.process_iter() if process.pid != self.process.pid and self._owns(process)]

    def wait_for_descendants(self, *, timeout: float = PATIENCE) -> None:
        """Wait until all descendants have exited."""
        deadline = time.monotonic() + timeout
        while names := list(filter(None, map(_name, self.descendants()))):
            assert time.monotonic() < deadline, f"still running: {names}"
            time.sleep(0.05)

    def _owns(self, process: psutil.Process) -> bool:
        try:
            return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(_MARKER) == self._marker
        except psutil.Error:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        for process in self.descendants():
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _name(process: psutil.Process) -> str:
    """Name of a process; empty if it has exited meanwhile."""
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def arguments_for(settings: TrainingSettings, root: Path) -> list[str]:
    """The command line that trains with these settings; the run is `root/runs/run`."""
    root.mkdir(exist_ok=True)
    configured = settings.model_copy(
        update={"run": settings.run.model_copy(update={"directory": root / "runs", "name": "run"})}
    )
    config = root / f"node-{settings.scale.node_rank}.yaml"
    config.write_text(render(configured), encoding="utf-8")
    return ["train", "--config", str(config)]


def train(
    settings: TrainingSettings, root: Path, *, prefix: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Driver:
    """Start a driver that trains or resumes the run `root/runs/run` with these settings."""
    arguments = arguments_for(settings, root)
    return Driver(*arguments, run=root / "runs" / "run", prefix=prefix, environment=environment)


def is_commit(event: Event) -> bool:
    """Whether the event reports a committed checkpoint."""
    return isinstance(event, CheckpointCommitted)


def end_together(drivers: Sequence[Driver]) -> None:
    """Wait until drivers that need each other have ended well; one that fails is reported at once, while the others wait for it."""
    deadline = time.monotonic() + PATIENCE
    running = list(drivers)
    while running:
        for driver in [one for one in running if one.process.poll() is not None]:
            ended = driver.end()
            assert ended.status == 0, ended.out + ended.err
            running.remove(driver)
        assert time.monotonic() < deadline, f"{len(running)} of {len(drivers)} drivers still run"
        time.sleep(0.05)

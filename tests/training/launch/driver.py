"""A driver as a process of its own, watched through the run's log and hit by real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

from observability.runlog import FILE_NAME, CheckpointCommitted, Event, RunLogReader
from training.config.load import render
from training.config.schema import TrainingSettings

ROOT = Path(__file__).resolve().parents[3]
_MARK = "RTP_TEST_DRIVER"

PATIENCE = 240.0
"""Seconds that something may take which takes a few on an idle machine: others may be busy on this one too."""


@dataclass(frozen=True)
class Ended:
    """How a driver ended: exit status (negative for a signal's number) and what it printed."""

    status: int
    out: str
    err: str


class Driver:
    """`python -m training …` in a process group of its own, as a shell starts it.

    Every process that descends from it carries a mark in its environment, by which it is found wherever it has gone.
    """

    def __init__(
        self,
        *arguments: str,
        run: Path,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it.

        Args:
            arguments: the command line behind `python -m training`.
            run: folder of the run that it will drive.
            prefix: a command that starts it in turn.
            environment: variables beside those of this process.
        """
        self.run = run
        self._mark = uuid.uuid4().hex
        events = run / FILE_NAME
        self._reader = RunLogReader(run, offset=events.stat().st_size if events.exists() else 0)
        self._seen: list[Event] = []
        # SPT_NOENV: Ray's workers would otherwise write their names over their environment, and with it the mark.
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "training", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **(environment or {}), _MARK: self._mark, "SPT_NOENV": "1"},
            process_group=0,
        )

    def wait_for(self, has_happened: Callable[[Event], bool], *, timeout: float = PATIENCE) -> bool:
        """Wait for an event of this driver's; False where the driver ended without it."""
        deadline = time.monotonic() + timeout
        while True:
            is_over = self.process.poll() is not None
            for event in self._reader.read_new():
                self._seen.append(event)
                if has_happened(event):
                    return True
            if is_over:
                return False
            assert time.monotonic() < deadline, f"not within {timeout} s; seen: {self._seen[-3:]}"
            time.sleep(0.01)

    def interrupt(self) -> None:
        """Ctrl-C: SIGINT to the whole process group, as from a terminal."""
        os.killpg(self.process.pid, signal.SIGINT)

    def terminate(self) -> None:
        """SIGTERM to the driver, as a scheduler sends it."""
        self.process.terminate()

    def end(self, *, timeout: float = PATIENCE) -> Ended:
        """Wait for its end."""
        out, err = self.process.communicate(timeout=timeout)
        return Ended(self.process.returncode, out, err)

    def kill(self) -> None:
        """SIGKILL the driver, and it alone."""
        self.process.kill()
        self.process.communicate()

    def family(self) -> list[psutil.Process]:
        """The processes it started, directly or not, that live."""
        return [process for process in psutil.process_iter() if process.pid != self.process.pid and self._owns(process)]

    def wait_for_family_to_end(self, *, but: Sequence[str] = (), timeout: float = PATIENCE) -> None:
        """Wait until no process that it started lives, those of the names `but` left out.

        Raises:
            AssertionError: some still do after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while names := [process.name() for process in self.family() if process.name() not in but]:
            assert time.monotonic() < deadline, f"still there: {names}"
            time.sleep(0.05)

    def _owns(self, process: psutil.Process) -> bool:
        try:
            return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(_MARK) == self._mark
        except psutil.Error:
            return False

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        for process in self.family():
            process.kill()


def arguments_for(settings: TrainingSettings, root: Path) -> list[str]:
    """The command line that trains with these settings; the run is `root/runs/run`."""
    root.mkdir(exist_ok=True)
    placed = settings.model_copy(
        update={"run": settings.run.model_copy(update={"directory": root / "runs", "name": "run"})}
    )
    config = root / f"node-{settings.scale.node_rank}.yaml"
    config.write_text(render(placed), encoding="utf-8")
    return ["train", "--config", str(config)]


def train(
    settings: TrainingSettings,
    root: Path,
    *,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Driver:
    """Start a driver that trains with these settings, or goes on with what is there; the run is `root/runs/run`."""
    arguments = arguments_for(settings, root)
    return Driver(*arguments, run=root / "runs" / "run", prefix=prefix, environment=environment)


def is_commit(event: Event) -> bool:
    """A checkpoint is on storage."""
    return isinstance(event, CheckpointCommitted)

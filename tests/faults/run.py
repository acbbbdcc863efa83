"""A run under faults: its driver, its processes, and where they leave files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil

from observability.runlog import Event, RunEnded, RunStarted, Step
from observability.uptime import uptime
from tests.engines.ray_cluster import short_folder
from tests.engines.small_disk import small_disk
from tests.training.launch.driver import Driver, Ended, train
from training.checkpoint.manifest import MANIFEST_FILE
from training.checkpoint.store import FOLDER
from training.config.schema import TrainingSettings

IN_MEMORY = Path("/dev/shm")
"""Where agents keep the state of ranks."""

_GONE_SECONDS = 60.0
"""How long processes may take to end after their driver, on a busy machine."""


class FaultedRun:
    """A run that is started, suffers faults, and is started again with the same command where they end its driver.

    Attributes:
        settings: of the run.
        root: folder of the run's folder.
        temporary: folder for the temporary files of its processes, which they all inherit.
    """

    def __init__(
        self,
        settings: TrainingSettings,
        folder: Path,
        *,
        root: Path | None = None,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare."""
        self.settings = settings
        self.root = root or folder / "files"
        self.temporary = folder / "tmp"
        home = folder / "home"
        for path in (self.temporary, home):
            path.mkdir()
        self._prefix = prefix
        # A driver protects its local Ray cluster with a token; the clusters that tests share have none.
        shipped = {"RAY_AUTH_MODE": "token", "HOME": str(home), "TMPDIR": str(self.temporary)}
        self._environment = {**shipped, **(environment or {})}
        self._driver: Driver | None = None
        self._seen: dict[int, psutil.Process] = {}
        self.damaged: Path | None = None
        """The checkpoint that the fault damages, if it does."""
        self.began: float | None = None
        """Uptime of the machine at which the first driver had started, as this process saw it; None before that."""

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.root / "runs" / "run"

    @property
    def driver(self) -> Driver:
        """The newest driver."""
        assert self._driver is not None, "the run has not started"
        return self._driver

    def start(self) -> None:
        """Start or resume the run, and wait until its driver has accepted the settings."""
        self._driver = train(self.settings, self.root, prefix=self._prefix, environment=self._environment)
        self.wait_for(lambda event: isinstance(event, RunStarted))
        self.began = self.began or uptime()

    def wait_for(self, has_happened: Callable[[Event], bool]) -> None:
        """Wait for an event of the newest driver."""
        assert self.driver.wait_for(has_happened), f"the driver ended early: {self.driver.end()}"

    def wait_for_step(self, step: int) -> None:
        """Wait until the log has this step or a later one."""
        self.wait_for(lambda event: isinstance(event, Step) and event.step >= step)

    def end(self) -> Ended:
        """Wait for the driver to exit."""
        self.processes()
        self.driver.wait_for(lambda event: isinstance(event, RunEnded))
        return self.driver.end()

    def kill_driver(self) -> None:
        """SIGKILL of the driver; its processes have to end by themselves."""
        self.processes()
        self.driver.kill()

    def processes(self) -> list[psutil.Process]:
        """The running processes of the run besides its driver."""
        found = self.driver.descendants()
        self._seen.update((process.pid, process) for process in found)
        return found

    def rank(self, rank: int) -> psutil.Process:
        """The process of a rank."""
        return next(process for process in self.processes() if name_of(process) == f"rtp-rank-{rank}")

    def left_behind(self) -> list[str]:
        """Processes, and files in memory and among the temporary ones, that are still there; processes get time to end."""
        deadline = time.monotonic() + _GONE_SECONDS
        while (running := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        names = [f"process {process.pid} {name_of(process)}" for process in running]
        in_memory = [path for pid in self._seen if (path := IN_MEMORY / f"rtp-rank-{pid}").exists()]
        files = [path for path in self.temporary.rglob("*") if not path.is_dir()]
        unfinished = [path for path in (self.folder / FOLDER).iterdir() if not (path / MANIFEST_FILE).exists()]
        return [*names, *map(str, [*in_memory, *files, *unfinished])]

    def close(self) -> None:
        """End what still runs."""
        if self._driver is not None:
            self._driver.__exit__(None, None, None)


def name_of(process: psutil.Process) -> str:
    """The name of a process; empty if it has ended."""
    with suppress(psutil.Error):
        return str(process.name())
    return ""


def on_namespace(namespace: str) -> list[psutil.Process]:
    """The processes of a network namespace."""
    inode = os.stat(f"/run/netns/{namespace}").st_ino  # noqa: PTH116 - of the namespace, not of a file
    found = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if os.stat(f"/proc/{process.pid}/ns/net").st_ino == inode:  # noqa: PTH116
                found.append(process)
    return found


@contextmanager
def run_here(settings: TrainingSettings) -> Iterator[FaultedRun]:
    """A run on this machine, whose driver starts what it needs."""
    with short_folder() as folder, closing(FaultedRun(settings, folder)) as run:
        yield run


@contextmanager
def run_on_small_disk(settings: TrainingSettings) -> Iterator[FaultedRun]:
    """A run whose folder is on a disk of 300 MiB; skips without the right to mount one."""
    with (
        short_folder() as folder,
        small_disk(folder / "disk", size="300m") as disk,
        closing(FaultedRun(settings, folder, root=disk)) as run,
    ):
        yield run

"""Namespaces that look like a machine to the programs in them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from infra.lifecycle.sandbox.node.namespace import Contents
from infra.lifecycle.sandbox.processes import Process
from infra.spec.errors import PlatformError

_NAMESPACES = ("--pid", "--mount", "--net", "--uts", "--ipc")
"""The cgroup namespace comes later, when the first process is in its cgroup."""

_ROOT = Path(__file__).parents[4]
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.02
_TAIL_LINES = 8


class Machine:
    """Namespaces with a first process, which waits until `run` says what is in them. They end with the process that made them.

    Attributes:
        name: host name.
        address: its address in the sandbox's network.
        folder: its files.
    """

    def __init__(self, name: str, *, address: str, folder: Path) -> None:
        """Make the namespaces, without a network.

        Args:
            name: host name.
            address: its address, which `network` gives it.
            folder: created here.

        Raises:
            PlatformError: the namespaces were not made in time; carries the reason.
        """
        self.name = name
        self.address = address
        self.folder = folder
        folder.mkdir(parents=True, mode=0o700)
        first: list[str | Path] = [sys.executable, "-m", "infra.lifecycle.sandbox.node.namespace", self._contents]
        unshare = ["unshare", "--fork", "--kill-child", "--mount-proc", "--propagation", "private", *_NAMESPACES]
        self._process = Process(
            [*unshare, *first],
            log=folder / "namespace.log",
            environment={"PYTHONPATH": str(_ROOT), "PYTHONUNBUFFERED": "1"},
        )
        host = Path("/proc/self/ns/net").stat().st_ino
        self._process.await_(lambda: self._network() not in {None, host}, seconds=_START_SECONDS)
        (folder / "pid").write_text(str(self.process), encoding="utf-8")

    @property
    def process(self) -> int:
        """A process in the network and mount namespaces, as this machine sees it."""
        return self._process.pid

    @property
    def prefix(self) -> list[str]:
        """Prefix of a command that runs in the machine's network and mount namespaces."""
        return entering(self.process)

    def run(
        self,
        programs: Mapping[str, Sequence[str]],
        *,
        cgroup: str,
        path: str,
        folders: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
    ) -> None:
        """Start programs.

        Args:
            programs: command by name, which is also that of the log.
            cgroup: cgroup of the machine; exists.
            path: PATH of the programs.
            folders: paths at which the machine has folders of its own, empty ones.
            files: text by the path of a file that only the machine sees.
        """
        Contents(
            host_name=self.name,
            cgroup=cgroup,
            folders={target: str(self._own_folder(target)) for target in folders},
            files={target: str(self._own_file(target, text)) for target, text in (files or {}).items()},
            logs=str(self.folder),
            path=path,
            programs=programs,
        ).write(self._contents)

    def do(self, *command: str | Path) -> None:
        """Run a command in the machine's network and mount namespaces.

        Raises:
            PlatformError: it failed; carries its output.
        """
        done(*self.prefix, *command)

    def await_(self, is_ready: Callable[[], bool], *, what: str, seconds: float) -> None:
        """Wait for something that the machine's programs bring about.

        Raises:
            PlatformError: it did not happen in time; carries the ends of the programs' logs.
        """
        deadline = time.monotonic() + seconds
        while not is_ready():
            if time.monotonic() > deadline or not self._process.is_running:
                raise PlatformError(f"{self.name}: {what} did not happen in {seconds:.0f} s:\n{self._tails()}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End everything in the machine, first its first process, so that its parent reaps it."""
        with contextlib.suppress(OSError):
            for child in Path(f"/proc/{self.process}/task/{self.process}/children").read_text(encoding="utf-8").split():
                os.kill(int(child), signal.SIGKILL)
            self._process.await_exit(_STOP_SECONDS)
        self._process.stop()

    @property
    def _contents(self) -> Path:
        return self.folder / "contents.json"

    def _own_folder(self, target: str) -> Path:
        place = self.folder / "root" / target.strip("/")
        place.mkdir(parents=True)
        return place

    def _own_file(self, target: str, text: str) -> Path:
        place = self.folder / "files" / target.strip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        return place

    def _network(self) -> int | None:
        try:
            return Path(f"/proc/{self.process}/ns/net").stat().st_ino
        except OSError:
            return None

    def _tails(self) -> str:
        lines = []
        for log in sorted(self.folder.glob("*.log")):
            text = log.read_text(encoding="utf-8", errors="replace").splitlines()
            lines += [f"  {log.stem}: {line}" for line in text[-_TAIL_LINES:]]
        return "\n".join(lines)


def entering(process: int) -> list[str]:
    """Prefix of a command that runs in the network and mount namespaces of a process."""
    return ["nsenter", f"--target={process}", "--net", "--mount", "--"]


def done(*command: str | Path) -> str:
    """Run a command; returns its output.

    Raises:
        PlatformError: it failed; carries its output.
    """
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        said = (ended.stderr + ended.stdout).strip()
        raise PlatformError(f"{' '.join(map(str, command))} failed with status {ended.returncode}:\n{said[-2000:]}")
    return ended.stdout

"""Processes of pods and nodes, as this machine's kernel sees them: real faults are done to them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from infra.spec.manifest import Manifest


def of_pod(pod: Manifest) -> list[psutil.Process]:
    """The processes of a pod."""
    mark = f"pod{pod['metadata']['uid']}/"
    found = []
    for process in psutil.process_iter():
        try:
            if mark in Path(f"/proc/{process.pid}/cgroup").read_text():
                found.append(process)
        except OSError:  # it has exited
            continue
    return found


def kill_container(pod: Manifest, *, program: str) -> None:
    """SIGKILL the first process of the container that runs a program, so that the kernel kills all others of it."""
    (first,) = [one for one in of_pod(pod) if _is_first(one) and program in " ".join(one.cmdline())]
    first.kill()


@contextmanager
def stopped(folder: Path, program: str, *words: str) -> Iterator[None]:
    """A program of a sandbox that does nothing while the context is open."""
    process = find(folder, program, *words)
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def find(folder: Path, program: str, *words: str) -> psutil.Process:
    """The one program of a sandbox with these words in its command line."""
    wanted = (str(folder), *words)
    (found,) = [one for one in _named(program) if all(word in " ".join(_command_line(one)) for word in wanted)]
    return found


@dataclass(frozen=True)
class Memory:
    """The memory controller's group of a container, of version 1.

    Attributes:
        folder: of the group.
    """

    folder: Path

    @classmethod
    def of(cls, process: psutil.Process) -> Memory:
        """The group of a process."""
        for line in Path(f"/proc/{process.pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                return cls(Path("/sys/fs/cgroup/memory") / path.lstrip("/"))
        raise AssertionError(f"process {process.pid} has no group of the memory controller, version 1")

    @property
    def kills(self) -> int:
        """Processes of the group that the kernel has killed because it was out of memory."""
        lines = (self.folder / "memory.oom_control").read_text().splitlines()
        return int(dict(line.split() for line in lines)["oom_kill"])

    def limit_to_use(self) -> int:
        """Limit the group to what it uses now; returns the limit that it had."""
        limit = self.folder / "memory.limit_in_bytes"
        before = int(limit.read_text())
        (self.folder / "memory.force_empty").write_text("0")
        limit.write_text((self.folder / "memory.usage_in_bytes").read_text())
        return before

    def limit(self, size: int) -> None:
        """Limit the group to so many bytes."""
        (self.folder / "memory.limit_in_bytes").write_text(str(size))


def _is_first(process: psutil.Process) -> bool:
    """Whether it is process 1 of its PID namespace."""
    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (line,) = [one for one in status if one.startswith("NSpid:")]
    return line.split()[-1] == "1"


def _named(program: str) -> list[psutil.Process]:
    return [one for one in psutil.process_iter(["name"]) if str(one.info["name"]).startswith(program[:15])]


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []

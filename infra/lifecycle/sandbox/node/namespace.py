"""`python -m infra.lifecycle.sandbox.node.namespace FILE`: the first process in the namespaces of a node.

Waits for the file, which says what to run (`Contents`), arranges cgroups and mounts, starts the programs, and restarts one that
exits, as systemd does on a node. As process 1 of its PID namespace it reaps what the programs leave behind, and its end is theirs.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from infra.lifecycle.sandbox.node import cgroups, mounts

_CLONE_NEWCGROUP = 0x02000000
_RESTART_SECONDS = 1.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What is in a set of namespaces.

    Attributes:
        host_name: its host name.
        cgroup: its cgroup, which becomes the root of the cgroups that it sees.
        folders: see `mounts.arrange`.
        files: see `mounts.arrange`.
        logs: folder for the programs' output.
        path: PATH of the programs.
        programs: command by name.
    """

    host_name: str
    cgroup: str
    folders: Mapping[str, str]
    files: Mapping[str, str]
    logs: str
    path: str
    programs: Mapping[str, Sequence[str]]

    def write(self, file: Path) -> None:
        """Write them for the waiting process; complete when the file appears."""
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self)), encoding="utf-8")
        partial.rename(file)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what `write` wrote."""
        return cls(**json.loads(file.read_text(encoding="utf-8")))


def enter(file: Path) -> None:
    """Wait for the file, and keep what it describes; does not return."""
    while not file.exists():
        time.sleep(_POLL_SECONDS)
    contents = Contents.read(file)
    socket.sethostname(contents.host_name)
    hierarchies = cgroups.hierarchies()
    cgroups.join(contents.cgroup)
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWCGROUP) != 0:
        raise OSError(ctypes.get_errno(), "unshare: no cgroup namespace")
    mounts.arrange(contents.folders, contents.files, hierarchies)
    _supervise(contents)


def _supervise(contents: Contents) -> None:
    running = {_start(contents, name): name for name in contents.programs}
    while True:
        process, status = os.wait()
        name = running.pop(process, None)
        if name is not None:
            print(f"{name} ended with status {os.waitstatus_to_exitcode(status)}, and is restarted", flush=True)
            time.sleep(_RESTART_SECONDS)
            running[_start(contents, name)] = name


def _start(contents: Contents, name: str) -> int:
    command = contents.programs[name]
    log = os.fspath(Path(contents.logs) / f"{name}.log")
    return os.posix_spawn(
        command[0],
        list(command),
        {**os.environ, "PATH": contents.path},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


if __name__ == "__main__":
    enter(Path(sys.argv[1]))

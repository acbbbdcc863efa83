"""`python -m infra.lifecycle.sandbox.keeper FOLDER [CRDS]`: keeps a control plane up until it is told to end.

It says `ready` and the names of the operators that run on its standard output, or why it could not start. While it runs
it holds a lock, in whose file its process id stands.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.lifecycle.sandbox.crds import available_crds
from infra.lifecycle.sandbox.operators import start_operators
from infra.lifecycle.sandbox.programs import find
from infra.spec.errors import StackError
from platform_charts.charts.crds import CrdFolder

READY = "ready"
"""First word of a keeper whose control plane is up."""


def lock_of(folder: Path) -> Path:
    """The lock of the sandbox in `folder`."""
    return folder.with_name(f"{folder.name}.lock")


def keep(folder: Path, *, crds: Path | None) -> int:
    """Keep a control plane in `folder` until SIGTERM; 0 then, an error's status where it did not start.

    Args:
        folder: see `ControlPlane`.
        crds: folder with custom resource definitions; None takes those that are there, see `definitions.known_definitions`.
    """
    # As a Python error a signal unwinds what has been started so far, at whatever moment it comes.
    signal.signal(signal.SIGTERM, _end)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # A bare descriptor, which nothing closes: the lock is to last as long as the process does.
    lock = os.open(lock_of(folder), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(lock, str(os.getpid()).encode())
    try:
        found = CrdFolder(crds).crds() if crds else available_crds(os.environ)
        with ControlPlane(folder, programs=find(os.environ), crds=found) as plane:
            operators = start_operators(plane, os.environ)
            print(READY, *(operator.name for operator in operators), flush=True)
            _let_go_of_the_terminal()
            while True:
                signal.pause()
    except StackError as error:
        print(error, flush=True)
        return error.status
    except SystemExit:
        return 0


def _end(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit


def _let_go_of_the_terminal() -> None:
    with Path(os.devnull).open("w", encoding="utf-8") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())
        os.dup2(nothing.fileno(), sys.stderr.fileno())


if __name__ == "__main__":
    _folder, *_crds = map(Path, sys.argv[1:])
    sys.exit(keep(_folder, crds=_crds[0] if _crds else None))

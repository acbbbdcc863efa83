"""`python -m infra.lifecycle.sandbox.keeper FOLDER [CRDS]`: runs a control plane, and real nodes, until SIGTERM.

Reads the real nodes from its standard input (`node.request`). Prints `ready` and the names of the running operators, or why the
start failed. While it runs it holds a lock on a file that contains its process id.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import NoReturn

from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.lifecycle.sandbox.crds import available_crds
from infra.lifecycle.sandbox.images.registry import start_registry, storage_folder
from infra.lifecycle.sandbox.node.cluster import RealNodes
from infra.lifecycle.sandbox.node.request import RealNode, load
from infra.lifecycle.sandbox.operators import start_operators
from infra.lifecycle.sandbox.programs import find_programs, find_registry
from infra.lifecycle.sandbox.services.start import service_programs
from infra.spec.errors import PlatformError
from platform_charts.charts.crds import CrdFolder

READY = "ready"
"""First word that the keeper prints when the control plane is ready."""

_RESTART_SECONDS = 1.0
"""After this time an operator that has exited is started again, as a Deployment starts its container again."""


def lock_of(folder: Path) -> Path:
    """Lock file of the sandbox in `folder`."""
    return folder.with_name(f"{folder.name}.lock")


def keep(folder: Path, *, crds: Path | None, nodes: Sequence[RealNode] = ()) -> int:
    """Run a control plane in `folder` until SIGTERM; returns 0, or the error's exit status if the start failed.

    Args:
        folder: see `ControlPlane`.
        crds: folder of CRDs to apply; None: see `crds.available_crds`.
        nodes: nodes that run pods.
    """
    # Raised as an exception, the signal stops everything started so far, at any point.
    signal.signal(signal.SIGTERM, _exit)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # A bare descriptor that nothing closes, so the lock lasts as long as the process.
    lock = os.open(lock_of(folder), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(lock, str(os.getpid()).encode())
    try:
        found = CrdFolder(crds).crds() if crds else available_crds(os.environ)
        with ExitStack() as stack:
            programs = find_programs(os.environ)
            real = stack.enter_context(RealNodes(folder, nodes, os.environ)) if nodes else None
            access = real.access if real else None
            plane = stack.enter_context(ControlPlane(folder, programs=programs, crds=found, nodes=access))
            if real:
                storage = storage_folder(os.environ)
                start_registry(plane, find_registry(os.environ), address=real.access.address, storage=storage)
                _start_nodes(real, plane)
            operators = start_operators(plane, os.environ, services=real.services if real else None)
            print(READY, *(operator.module.name for operator in operators), flush=True)
            _detach_from_terminal()
            while True:
                time.sleep(_RESTART_SECONDS)
                for operator in operators:
                    operator.process.keep_running()
    except PlatformError as error:
        print(error, flush=True)
        return error.status
    except SystemExit:
        return 0


def _start_nodes(real: RealNodes, plane: ControlPlane) -> None:
    """Start the nodes and the services of their pods."""
    found = service_programs(
        real.folder / "given",
        address=real.services.address,
        kubeconfig=plane.kubeconfig,
        environment=os.environ,
    )
    found.services.write(plane.folder)
    real.start(plane, programs=found.programs, folders=found.folders)
    real.mount_read_only(found.services.shared, found.services.read_only)
    found.await_ready(real.services)


def _exit(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit


def _detach_from_terminal() -> None:
    with Path(os.devnull).open("w", encoding="utf-8") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())
        os.dup2(nothing.fileno(), sys.stderr.fileno())


if __name__ == "__main__":
    _folder, *_crds = map(Path, sys.argv[1:])
    sys.exit(keep(_folder, crds=_crds[0] if _crds else None, nodes=load(sys.stdin.read())))

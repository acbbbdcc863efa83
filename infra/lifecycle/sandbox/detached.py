"""A control plane in the background, one per folder, which outlives the command that started it."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from infra.lifecycle.sandbox.keeper import READY, lock_of
from infra.lifecycle.sandbox.node import leftovers
from infra.lifecycle.sandbox.node.request import RealNode, dump
from infra.spec.errors import PlatformError, RefusedError

_STOP_SECONDS = 180.0
"""Most of it deletes the unpacked images of real nodes, which takes a minute on a busy disk."""
_POLL_SECONDS = 0.05


def is_running(folder: Path) -> bool:
    """Whether a sandbox runs in `folder`."""
    lock = lock_of(folder)
    if not lock.is_file():
        return False
    with lock.open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def start(folder: Path, *, crds: Path | None = None, nodes: Sequence[RealNode] = ()) -> frozenset[str]:
    """Start a control plane in `folder` and wait until it is ready; an exception, as of Ctrl-C, stops it.

    Args:
        folder: see `ControlPlane`.
        crds: folder of CRDs to apply; None: see `crds.available_crds`.
        nodes: nodes that run pods.

    Returns:
        names of the operators that run, see `modules.OPERATORS`.

    Raises:
        RefusedError: one runs already.
        PlatformError: it did not start, or its programs are missing; carries the keeper's message.
    """
    if is_running(folder):
        raise RefusedError(f"a sandbox already runs in {folder}", remedy="stop it first: make sandbox-down")
    _remove(folder)
    keeper = subprocess.Popen(
        [sys.executable, "-m", "infra.lifecycle.sandbox.keeper", folder, *([crds] if crds else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    assert keeper.stdout is not None
    assert keeper.stdin is not None
    with keeper.stdout as output:
        try:
            with keeper.stdin as request:
                request.write(dump(nodes))
            first = output.readline()
            if first.split()[:1] == [READY]:
                return frozenset(first.split()[1:])
            reason = f"{first}{output.read()}".rstrip()
        except BaseException:  # a signal of the terminal does not reach the keeper
            keeper.terminate()
            keeper.wait()
            _remove(folder)
            raise
    keeper.wait()
    _remove(folder)
    raise PlatformError(f"the sandbox did not start: {reason}")


def stop(folder: Path) -> bool:
    """Stop the sandbox in `folder` and delete its files, also those of a sandbox that was killed.

    Returns:
        whether there was one to stop or delete.

    Raises:
        PlatformError: it did not stop.
    """
    was_running = is_running(folder)
    if was_running:
        keeper = int(lock_of(folder).read_text(encoding="utf-8"))
        os.kill(keeper, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while is_running(folder):
            if time.monotonic() > deadline:
                raise PlatformError(
                    f"the sandbox (process {keeper}) did not stop in {_STOP_SECONDS:.0f} s",
                    remedy=f"kill -9 {keeper}, then run make sandbox-down again",
                )
            time.sleep(_POLL_SECONDS)
    return _remove(folder) or was_running


def _remove(folder: Path) -> bool:
    """Delete the files of a sandbox, and what its real nodes left; whether there were any."""
    had_nodes = leftovers.remove(folder)
    was_there = folder.exists()
    if was_there:
        shutil.rmtree(folder)
    lock_of(folder).unlink(missing_ok=True)
    return was_there or had_nodes

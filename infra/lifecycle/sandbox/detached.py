"""A control plane that outlives the command that started it, one a folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from infra.lifecycle.sandbox.keeper import READY, lock_of
from infra.spec.errors import PlatformError, RefusedError

_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.05


def is_running(folder: Path) -> bool:
    """Whether a sandbox is up in `folder`."""
    lock = lock_of(folder)
    if not lock.is_file():
        return False
    with lock.open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def start(folder: Path, *, crds: Path | None = None) -> frozenset[str]:
    """Start a control plane in `folder`; it is up when this returns.

    Args:
        folder: see `ControlPlane`.
        crds: folder with the custom resource definitions it is to have; None takes those that are there.

    Returns:
        names of the operators that run in it, see `modules.OPERATORS`.

    Raises:
        RefusedError: one is up already.
        PlatformError: it did not start, or its programs are not there; in the keeper's words.
    """
    if is_running(folder):
        raise RefusedError(f"a sandbox is running already in {folder}", remedy="end it first: make sandbox-down")
    _remove(folder)
    keeper = subprocess.Popen(
        [sys.executable, "-m", "infra.lifecycle.sandbox.keeper", folder, *([crds] if crds else [])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    assert keeper.stdout is not None
    with keeper.stdout as said:
        first = said.readline()
        if first.split()[:1] == [READY]:
            return frozenset(first.split()[1:])
        reason = f"{first}{said.read()}".rstrip()
    keeper.wait()
    _remove(folder)
    raise PlatformError(f"the sandbox did not start: {reason}")


def stop(folder: Path) -> bool:
    """End the sandbox in `folder`, its processes and its files, also those of one that was killed.

    Returns:
        whether there was one.

    Raises:
        PlatformError: it did not end.
    """
    was_running = is_running(folder)
    if was_running:
        keeper = int(lock_of(folder).read_text(encoding="utf-8"))
        os.kill(keeper, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while is_running(folder):
            if time.monotonic() > deadline:
                raise PlatformError(
                    f"the sandbox (process {keeper}) did not end in {_STOP_SECONDS:.0f} s",
                    remedy=f"kill -9 {keeper}, and do this again",
                )
            time.sleep(_POLL_SECONDS)
    return _remove(folder) or was_running


def _remove(folder: Path) -> bool:
    """Remove what a killed keeper left."""
    was_there = folder.exists()
    if was_there:
        shutil.rmtree(folder)
    lock_of(folder).unlink(missing_ok=True)
    return was_there

"""The Ray launcher without Ray; test_agreement.py runs it with Ray."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from pathlib import Path

import pytest

from tests.engines.ray_cluster import short_folder
from training.launch.ray_cluster import _preserve_sigterm_handler, session_folder

SOCKET = Path("session_2026-11-21_05-47-00_123456_1234567") / "sockets" / "plasma_store"


def scratch_in(folder: Path, *, socket_path_length: int) -> Path:
    """A folder whose path makes the path of Ray's longest socket that long."""
    return folder / ("x" * (socket_path_length - len(str(folder / SOCKET)) - 1))


def test_the_session_folder_is_the_scratch_folder_if_the_socket_paths_fit() -> None:
    with short_folder() as folder:
        scratch = scratch_in(folder, socket_path_length=107)
        chosen = session_folder(scratch)
        assert chosen == scratch
        socket_path = chosen / SOCKET
        socket_path.parent.mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(str(socket_path))


def test_the_session_folder_is_a_temporary_folder_if_the_socket_paths_are_too_long() -> None:
    with short_folder() as folder:
        chosen = session_folder(scratch_in(folder, socket_path_length=108))
    assert chosen.parent == Path(tempfile.gettempdir())
    assert str(os.getuid()) in chosen.name


def test_the_sigterm_handler_is_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with _preserve_sigterm_handler():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_sigterm_while_ray_starts_interrupts_the_driver() -> None:
    """Ray's handler would exit with status 15."""
    with pytest.raises(KeyboardInterrupt), _preserve_sigterm_handler():
        raise SystemExit(15)

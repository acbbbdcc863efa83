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


def test_the_session_folder_is_a_temporary_folder_only_if_the_socket_paths_would_be_too_long() -> None:
    with short_folder() as folder:
        at_most, longer = (folder / ("x" * (length - len(str(folder / SOCKET)) - 1)) for length in (107, 108))
        assert session_folder(at_most) == at_most
        socket_path = at_most / SOCKET
        socket_path.parent.mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(str(socket_path))
        chosen = session_folder(longer)
    assert chosen.parent == Path(tempfile.gettempdir())
    assert str(os.getuid()) in chosen.name


def test_a_sigterm_while_ray_starts_interrupts_the_driver_and_the_handler_is_restored() -> None:
    """Ray's handler would exit with status 15."""
    with pytest.raises(KeyboardInterrupt), _preserve_sigterm_handler():
        raise SystemExit(15)
    before = signal.getsignal(signal.SIGTERM)
    with _preserve_sigterm_handler():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) is before

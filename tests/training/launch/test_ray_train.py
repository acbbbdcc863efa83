"""The Ray launcher's own decisions, without Ray; test_agreement.py has them with it."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from pathlib import Path

import pytest

from tests.engines.ray_cluster import short_folder
from training.launch.ray_train import _keeping_sigterm_handler, session_folder

SOCKET_IN_A_SESSION = Path("session_2026-11-21_05-47-00_123456_1234567") / "sockets" / "plasma_store"


def test_ray_s_session_lies_beside_the_runs_where_its_sockets_can_be_opened_there() -> None:
    with short_folder() as folder:
        chosen = session_folder(folder / "ray")
        assert chosen == folder / "ray"
        socket_path = chosen / SOCKET_IN_A_SESSION
        socket_path.parent.mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(str(socket_path))


def test_ray_s_session_goes_to_the_temporary_folder_where_the_path_would_be_too_long(tmp_path: Path) -> None:
    chosen = session_folder(tmp_path / ("long" * 20))
    assert chosen.parent == Path(tempfile.gettempdir())
    assert str(os.getuid()) in chosen.name


def test_the_driver_s_answer_to_sigterm_outlives_one_that_ray_installs() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with _keeping_sigterm_handler():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_sigterm_while_ray_starts_ends_the_driver_as_an_interruption() -> None:
    """Ray's own handler would end it with status 15."""
    with pytest.raises(KeyboardInterrupt), _keeping_sigterm_handler():
        raise SystemExit(15)

"""A real JupyterLab, and a client that runs code in its kernels."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.engines.report_table import ran, skipped
from training.interactive.notebook import Server, ensure

_SECONDS = 120


def require_jupyterlab() -> None:
    """Skip the test if JupyterLab is not installed."""
    if importlib.util.find_spec("jupyterlab") is None:
        skipped("JupyterLab", "not installed", "make env FOR=dev")


@contextmanager
def jupyterlab(folder: Path, state: Path) -> Iterator[Server]:
    """A server on a folder, with its files in `state`; skips the test if JupyterLab is not installed."""
    require_jupyterlab()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(state.parent))
        server = ensure(folder, state=state, seconds=_SECONDS)
    ran("JupyterLab")
    try:
        yield server
    finally:
        stop(server.pid)


def stop(pid: int) -> None:
    """End a server."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGTERM)


def post(server: Server, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """The answer of the server's API to a request that makes something."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/api/{path}",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"token {server.token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own server
        return json.load(answer)


class executing:  # noqa: N801 - a context manager
    """Executes code in a kernel of the server, as a browser does, over a websocket that stays open."""

    def __init__(self, server: Server, kernel: str, code: str) -> None:
        self._address = f"ws://127.0.0.1:{server.port}/api/kernels/{kernel}/channels?token={server.token}"
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
        header = {"msg_id": "1", "msg_type": "execute_request", "username": "", "session": "1", "version": "5.3"}
        self._message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}

    def __enter__(self) -> None:
        """Send the code."""
        websocket = pytest.importorskip("websocket")
        self._socket = websocket.create_connection(self._address, timeout=_SECONDS)
        self._socket.send(json.dumps(self._message))

    def __exit__(self, *_error: object) -> None:
        """Close the connection; the kernel goes on."""
        self._socket.close()

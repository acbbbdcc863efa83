"""MLflow's UI on the embedded store: `python -m training ui`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from training.errors import PlatformError, PreflightError
from training.tracking.locations import EMBEDDED_FOLDER, embedded_artifacts, embedded_uri

_HOST = "127.0.0.1"
_START_SECONDS = 120.0
_POLL_SECONDS = 0.2


def serve_ui(*, port: int = 0) -> None:
    """Serve the UI on loopback until Ctrl-C, and print its URL when it is ready.

    Args:
        port: port to serve on; 0 selects a free one.

    Raises:
        PreflightError: the port is in use.
        PlatformError: the server exited or did not become ready in time.
    """
    chosen = _select_port(port)
    EMBEDDED_FOLDER.mkdir(parents=True, exist_ok=True)
    print(f"starting MLflow on {EMBEDDED_FOLDER}…", flush=True)
    log = EMBEDDED_FOLDER / "ui.log"
    with log.open("wb") as output:
        process = subprocess.Popen(_command(chosen), env=_environment(), stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait_until_ready(process, chosen, log)
        print(f"MLflow: http://{_HOST}:{chosen}  (Ctrl-C to stop)", flush=True)
        process.wait()
    except KeyboardInterrupt:
        print()
    finally:
        process.terminate()
        process.wait()


def _command(port: int) -> list[str]:
    options = {
        "backend-store-uri": embedded_uri(),
        "default-artifact-root": str(embedded_artifacts()),
        "host": _HOST,
        "port": str(port),
        "workers": "1",
    }
    return [sys.executable, "-m", "mlflow", "server", *(f"--{name}={value}" for name, value in options.items())]


def _environment() -> dict[str, str]:
    # The background jobs evaluate language models and take several more processes.
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return {**os.environ, **quiet}


def _select_port(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise PreflightError(
                f"cannot listen on port {port} of {_HOST}: {error.strerror}",
                remedy="choose another --port, or omit it to select a free one",
            ) from error
        return int(probe.getsockname()[1])


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"http://{_HOST}:{port}/health", timeout=1):
            return
        time.sleep(_POLL_SECONDS)
    raise PlatformError("the MLflow server did not start", remedy=f"see {log}")

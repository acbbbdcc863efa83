"""MLflow's UI on the embedded store: `python -m training ui`."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

from infra.spec.signals import interrupting
from training.local_port import local_port
from training.local_server import HOST, running
from training.tracking.locations import EMBEDDED_FOLDER, embedded_artifacts, embedded_uri

_USUAL_PORT = 5000

_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    # The background jobs evaluate language models and take several more processes.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}


def serve_ui(*, port: int = 0) -> None:
    """Serve the UI on loopback until Ctrl-C, and print its URL when it is ready.

    Args:
        port: port to serve on; 0 takes 5000, or another if it is in use.

    Raises:
        RefusedError: the port is in use.
        PlatformError: the server exited or did not become ready in time.
    """
    chosen = local_port(port, usual=_USUAL_PORT)
    EMBEDDED_FOLDER.mkdir(parents=True, exist_ok=True)
    print(f"starting MLflow on {EMBEDDED_FOLDER}…", flush=True)
    url, log = f"http://{HOST}:{chosen}", EMBEDDED_FOLDER / "mlflow.log"
    with (
        suppress(KeyboardInterrupt),
        interrupting([signal.SIGTERM, signal.SIGHUP]),
        running(_command(chosen), ready_url=f"{url}/health", log=log, environment=_ENVIRONMENT) as process,
    ):
        print(f"MLflow: {url}  (Ctrl-C to stop)", flush=True)
        process.wait()


def _command(port: int) -> list[str]:
    options = {
        "backend-store-uri": embedded_uri(),
        "default-artifact-root": str(embedded_artifacts()),
        "host": HOST,
        "port": str(port),
        "workers": "1",
    }
    return [sys.executable, "-m", "mlflow", "server", *(f"--{name}={value}" for name, value in options.items())]

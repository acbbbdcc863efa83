"""A real MLflow server on loopback that tests can kill and restart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.engines.ports import free_port
from tests.engines.report_table import ran
from tests.engines.s3 import S3Api

_START_SECONDS = 300.0
_STOP_SECONDS = 60.0


class MlflowServer:
    """A server and the command that starts it; its data outlives it."""

    def __init__(self, command: Sequence[str], *, port: int, environment: Mapping[str, str], log: Path) -> None:
        self._command = [*command]
        self._port = port
        self._environment = {**os.environ, **environment, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._group = 0

    @property
    def uri(self) -> str:
        """Address of the server; a restart keeps it."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers."""
        if self._process is not None:
            return
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._group = self._process.pid
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, f"MLflow's server did not start:\n{self._log.read_text()}"
            assert time.monotonic() < deadline, f"MLflow's server did not answer:\n{self._log.read_text()}"
            time.sleep(0.2)

    def kill(self) -> None:
        """Send SIGKILL to all of its processes."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> int:
        """Send SIGTERM to the main process, as Kubernetes does; returns its exit status."""
        assert self._process is not None, "the server does not run"
        self._process.terminate()
        status = self._process.wait(timeout=_STOP_SECONDS)
        self._process = None
        return status

    def log(self) -> str:
        """Its output so far."""
        return self._log.read_text(encoding="utf-8")

    def processes(self) -> list[str]:
        """Command line and environment of each of its running processes, by process id."""
        group = self._group
        found = []
        for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
            with suppress(OSError):  # the process has just exited
                if os.getpgid(int(folder.name)) == group:
                    texts = [(folder / name).read_bytes() for name in ("cmdline", "environ")]
                    found.append(f"{folder.name} {b' '.join(texts).replace(bytes(1), b' ').decode()}")
        return found

    def _answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._port}/health", timeout=10):
            return True
        return False


def local_server(
    folder: Path, *, store: str, artifacts: str, environment: Mapping[str, str] | None = None
) -> MlflowServer:
    """A server on a free port of loopback, which does not run yet."""
    port = free_port()
    options = {
        "backend-store-uri": store,
        "artifacts-destination": artifacts,
        "host": "127.0.0.1",
        "port": str(port),
        "workers": "1",
    }
    command = [sys.executable, "-m", "mlflow", "server", *(f"--{name}={value}" for name, value in options.items())]
    return MlflowServer(command, port=port, environment=environment or {}, log=folder / "server.log")


@pytest.fixture(scope="session")
def mlflow_server(
    postgres_url: str | None, s3_api: S3Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MlflowServer]:
    """A server on PostgreSQL, or on SQLite if that is not installed, with artifacts in S3."""
    folder = tmp_path_factory.mktemp("mlflow-server")
    store = postgres_url or f"sqlite:///{folder / 'mlflow.db'}"
    artifacts = f"s3://{s3_api.bucket}/mlflow"
    server = local_server(folder, store=store, artifacts=artifacts, environment=s3_api.environment())
    server.start()
    ran("MLflow server")
    yield server
    server.kill()

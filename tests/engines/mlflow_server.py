"""A real MLflow server on loopback that can be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.engines.ports import free_port
from tests.engines.report_table import ran
from tests.engines.s3 import S3Api

_START_SECONDS = 120.0


class MlflowServer:
    """A server of one process; its data lies elsewhere and outlives it."""

    def __init__(self, *, database: str, artifacts: str, environment: dict[str, str], log: Path) -> None:
        self._port = free_port()
        self._options = {
            "backend-store-uri": database,
            "artifacts-destination": artifacts,
            "host": "127.0.0.1",
            "port": str(self._port),
            "workers": "1",
        }
        self._environment = {**os.environ, **environment, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """Address of the server, the same after it was started again."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, unless it runs, and wait until it answers."""
        if self._process is not None:
            return
        options = [f"--{name}={value}" for name, value in self._options.items()]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", *options],
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, f"MLflow's server did not start:\n{self._log.read_text()}"
            assert time.monotonic() < deadline, f"MLflow's server did not answer:\n{self._log.read_text()}"
            time.sleep(0.2)

    def kill(self) -> None:
        """SIGKILL to all of its processes; what it was doing is cut off."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._port}/health", timeout=1):
            return True
        return False


@pytest.fixture(scope="session")
def mlflow_server(
    postgres_url: str | None, s3_api: S3Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MlflowServer]:
    """A server on PostgreSQL, or on SQLite where that is not installed, with artifacts behind S3's API."""
    folder = tmp_path_factory.mktemp("mlflow-server")
    server = MlflowServer(
        database=postgres_url or f"sqlite:///{folder / 'mlflow.db'}",
        artifacts=f"s3://{s3_api.bucket}/mlflow",
        environment=s3_api.environment(),
        log=folder / "server.log",
    )
    server.start()
    ran("MLflow server")
    yield server
    server.kill()

"""`monitor-up`: serves Prometheus and Grafana for the runs of this machine until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from infra.spec.signals import interrupting
from training.errors import PlatformError, PreflightError
from training.local_port import local_port
from training.monitoring.grafana import (
    find_grafana,
    grafana_command,
    grafana_environment,
    write_provisioning,
)
from training.monitoring.places import FOLDER, URL_FILE
from training.monitoring.prometheus import find_prometheus, prometheus_command, write_configuration
from training.monitoring.targets import Target, Targets, names

_HOST = "127.0.0.1"
_PROMETHEUS_PORT = 9090
_GRAFANA_PORT = 3000
_START_SECONDS = 60.0
_POLL_SECONDS = 1.0


def monitor_up(root: Path, *, port: int = 0) -> None:
    """Serve until Ctrl-C; what was recorded stays for the next time.

    Args:
        root: folder of the runs.
        port: of Prometheus; 0 takes 9090, or another if it is in use.

    Raises:
        PreflightError: there is no Prometheus, or local monitoring is up already.
        RefusedError: the port is in use.
        PlatformError: a program does not start.
    """
    program = find_prometheus()
    if URL_FILE.exists() and _answers(URL_FILE.read_text(encoding="utf-8").strip() + "/-/ready"):
        raise PreflightError(
            f"local monitoring is up already: {URL_FILE.read_text(encoding='utf-8').strip()}",
            remedy="use it, or end the other `make monitor-up` with Ctrl-C",
        )
    FOLDER.mkdir(parents=True, exist_ok=True)
    targets = FOLDER / "targets.json"
    _write_targets(targets, [])
    configuration = write_configuration(FOLDER, targets=targets)
    chosen = local_port(port, usual=_PROMETHEUS_PORT)
    url = f"http://{_HOST}:{chosen}"
    with suppress(KeyboardInterrupt), interrupting([signal.SIGTERM, signal.SIGHUP]), ExitStack() as stack:
        process = stack.enter_context(
            _running(prometheus_command(program, configuration, port=chosen), log=FOLDER / "prometheus.log")
        )
        _await_ready(process, f"{url}/-/ready", log=FOLDER / "prometheus.log")
        stack.enter_context(_announced(url))
        print(f"Prometheus: {url}  (alerts: {url}/alerts)", flush=True)
        _start_grafana(stack, url)
        print("Ctrl-C ends it; `make monitor` shows firing alerts of a run", flush=True)
        _follow(Targets(root), targets, process)


def _start_grafana(stack: ExitStack, prometheus_url: str) -> None:
    found = find_grafana()
    if found is None:
        print("Grafana: not installed (no `grafana` on PATH; GRAFANA_HOME names its folder): dashboards are not served")
        return
    port = local_port(0, usual=_GRAFANA_PORT)
    provisioning = write_provisioning(FOLDER, prometheus_url=prometheus_url)
    environment = grafana_environment(FOLDER, provisioning=provisioning, port=port)
    log = FOLDER / "grafana.log"
    process = stack.enter_context(_running(grafana_command(*found), log=log, environment=environment))
    _await_ready(process, f"http://{_HOST}:{port}/api/health", log=log)
    print(f"Grafana: http://{_HOST}:{port}/d/rtp-run", flush=True)


def _follow(finder: Targets, file: Path, process: subprocess.Popen[bytes]) -> None:
    """Give Prometheus the runs that come and go."""
    written: list[Target] = []
    while process.poll() is None:
        found = finder.find()
        if found != written:
            _write_targets(file, found)
            for name in sorted(set(names(found)) - set(names(written))):
                print(f"run {name}", flush=True)
            written = found
        time.sleep(_POLL_SECONDS)
    raise PlatformError("Prometheus has ended", remedy=f"see {FOLDER / 'prometheus.log'}")


def _write_targets(file: Path, targets: Sequence[Target]) -> None:
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(targets), encoding="utf-8")
    partial.replace(file)


@contextmanager
def _announced(url: str) -> Iterator[None]:
    URL_FILE.write_text(url, encoding="utf-8")
    try:
        yield
    finally:
        URL_FILE.unlink(missing_ok=True)


@contextmanager
def _running(
    command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for this process, which ends the other
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _await_ready(process: subprocess.Popen[bytes], url: str, *, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if _answers(url):
            return
        time.sleep(_POLL_SECONDS / 5)
    raise PlatformError(f"{log.stem} did not start", remedy=f"see {log}")


def _answers(url: str) -> bool:
    with suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=2):  # noqa: S310 - loopback
        return True
    return False

"""`monitor-up`: serves Prometheus and Grafana for the runs of this machine until Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from infra.spec.signals import interrupting
from training.errors import PlatformError, PreflightError
from training.local_port import local_port
from training.local_server import HOST, answers, running
from training.monitoring.grafana import (
    find_grafana,
    grafana_command,
    grafana_environment,
    write_provisioning,
)
from training.monitoring.places import FOLDER, URL_FILE
from training.monitoring.prometheus import find_prometheus, prometheus_command, write_configuration
from training.monitoring.targets import Target, Targets, names

_PROMETHEUS_PORT = 9090
_GRAFANA_PORT = 3000
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
    if URL_FILE.exists() and answers(URL_FILE.read_text(encoding="utf-8").strip() + "/-/ready"):
        raise PreflightError(
            f"local monitoring is up already: {URL_FILE.read_text(encoding='utf-8').strip()}",
            remedy="use it, or end the other `make monitor-up` with Ctrl-C",
        )
    FOLDER.mkdir(parents=True, exist_ok=True)
    targets = FOLDER / "targets.json"
    _write_targets(targets, [])
    configuration = write_configuration(FOLDER, targets=targets)
    chosen = local_port(port, usual=_PROMETHEUS_PORT)
    url = f"http://{HOST}:{chosen}"
    with suppress(KeyboardInterrupt), interrupting([signal.SIGTERM, signal.SIGHUP]), ExitStack() as stack:
        command = prometheus_command(program, configuration, port=chosen)
        log = FOLDER / "prometheus.log"
        process = stack.enter_context(running(command, ready_url=f"{url}/-/ready", log=log))
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
    url = f"http://{HOST}:{port}"
    stack.enter_context(
        running(grafana_command(*found), ready_url=f"{url}/api/health", log=log, environment=environment)
    )
    print(f"Grafana: {url}/d/rtp-run", flush=True)


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

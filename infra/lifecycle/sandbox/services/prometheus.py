"""`python -m infra.lifecycle.sandbox.services.prometheus PROGRAM KUBECONFIG FOLDER ADDRESS`: a Prometheus that follows the monitors.

Runs Prometheus, and gives it the targets of all PodMonitors, as the Prometheus Operator does in the stack. ServiceMonitors are not
followed: those of the stack belong to charts, which a sandbox does not install.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from infra.kube.api import KubernetesApi
from infra.kube.connection import connect_with
from infra.kube.errors import ApiError, ConnectionLostError
from infra.lifecycle.sandbox.processes import Process
from infra.lifecycle.sandbox.services.facts import PROMETHEUS_PORT, Services
from infra.lifecycle.sandbox.services.monitors import scrape_configs, unsupported
from infra.lifecycle.sandbox.services.targets import pod_targets
from infra.spec.cluster_names import MONITORING_NAMESPACE
from infra.spec.manifest import Manifest, api_object
from infra.spec.manifest_yaml import write_document

_SERVICE = "kube-prometheus-stack-prometheus"
"""Name of the chart's Service, which the platform's programs use."""

_MONITORING_API = "monitoring.coreos.com/v1"
_POLL_SECONDS = 2.0


def prometheus_command(program: Path, *, kubeconfig: Path, folder: Path, address: str) -> list[str]:
    """The command that runs this module.

    Args:
        program: Prometheus.
        kubeconfig: with which it finds monitors and targets.
        folder: made for its files.
        address: where it listens.
    """
    folder.mkdir(mode=0o700)
    return [sys.executable, "-m", __name__, str(program), str(kubeconfig), str(folder), address]


def prometheus_service(services: Services) -> Iterator[Manifest]:
    """The Service by which pods reach it; none without a Prometheus."""
    if not services.has_prometheus:
        return
    ports = [{"name": "http-web", "port": PROMETHEUS_PORT, "protocol": "TCP"}]
    yield api_object("v1", "Service", _SERVICE, namespace=MONITORING_NAMESPACE, spec={"ports": ports})
    yield api_object(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        _SERVICE,
        namespace=MONITORING_NAMESPACE,
        labels={"kubernetes.io/service-name": _SERVICE},
        addressType="IPv4",
        ports=ports,
        endpoints=[{"addresses": [services.address], "conditions": {"ready": True}}],
    )


def configuration(monitors: Iterable[Manifest], *, targets: Path) -> str:
    """Prometheus's configuration.

    Args:
        monitors: PodMonitors; those with unsupported fields are left out.
        targets: file with the ports of all pods.
    """
    used = sorted(
        (monitor for monitor in monitors if not unsupported(monitor)),
        key=lambda monitor: (monitor["metadata"]["namespace"], monitor["metadata"]["name"]),
    )
    interval = {"scrape_interval": "30s"}  # the operator's default
    return write_document({"global": interval, "scrape_configs": scrape_configs(used, targets=str(targets))})


class _Follower:
    """Keeps Prometheus's files equal to the cluster's monitors and pods."""

    def __init__(self, api: KubernetesApi, folder: Path) -> None:
        self._api = api
        self._targets = folder / "targets.json"
        self.file = folder / "prometheus.yml"
        self._written: dict[Path, str] = {}

    def follow(self) -> bool:
        """Write what has changed; whether the configuration has, which Prometheus has to read again."""
        monitors = self._api.items_if_served(_MONITORING_API, "PodMonitor")
        self._write(self._targets, json.dumps(pod_targets(self._api.items("v1", "Pod"))))
        has_changed = self._write(self.file, configuration(monitors, targets=self._targets))
        if has_changed:
            for monitor in monitors:
                print(_described(monitor), flush=True)
        return has_changed

    def _write(self, file: Path, text: str) -> bool:
        if self._written.get(file) == text:
            return False
        partial = file.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(file)
        self._written[file] = text
        return True


def _keep(program: Path, kubeconfig: Path, folder: Path, address: str) -> int:
    """Run Prometheus until it ends, and give it a new configuration when the monitors change."""
    follower = _Follower(connect_with(kubeconfig), folder)
    process: Process | None = None
    while process is None or process.is_running:
        try:
            has_changed = follower.follow()
        except (ApiError, ConnectionLostError) as error:
            print(f"monitors: {error}", flush=True)
        else:
            if process is None:
                process = _start(program, follower.file, folder, address)
            elif has_changed:
                os.kill(process.pid, signal.SIGHUP)
        time.sleep(_POLL_SECONDS)
    print(f"prometheus ended, see {folder / 'output.log'}", flush=True)
    return 1


def _described(monitor: Manifest) -> str:
    fields, metadata = unsupported(monitor), monitor["metadata"]
    name = f"PodMonitor {metadata['namespace']}/{metadata['name']}"
    return f"{name}: left out, because of {', '.join(fields)}" if fields else f"{name}: followed"


def _start(program: Path, file: Path, folder: Path, address: str) -> Process:
    command: list[str | Path] = [
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}:{PROMETHEUS_PORT}",
        "--log.level=warn",
    ]
    return Process(command, log=folder / "output.log")


if __name__ == "__main__":
    _program, _kubeconfig, _folder = map(Path, sys.argv[1:4])
    sys.exit(_keep(_program, _kubeconfig, _folder, sys.argv[4]))

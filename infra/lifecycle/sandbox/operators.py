"""Run the KubeRay operator and Kueue as plain processes with a control plane."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

from infra.kube.api import KubernetesApi
from infra.lifecycle.sandbox import kueue_admission
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.lifecycle.sandbox.modules import KUBERAY, KUEUE, Module
from infra.lifecycle.sandbox.node.machine import Machine
from infra.lifecycle.sandbox.processes import Process, free_ports
from infra.lifecycle.sandbox.programs import find_operator
from infra.spec.cluster_names import KUEUE_API
from infra.spec.manifest import Manifest
from infra.spec.manifest_yaml import write_document
from platform_charts.charts.kueue import kueue_configuration

_START_SECONDS = 180.0
_LOOPBACK = "127.0.0.1"

_RAY_JOB = ("ray.io/v1", "RayJob")


class Operator(NamedTuple):
    """A running operator."""

    module: Module
    process: Process


def start_operators(
    plane: ControlPlane, environment: Mapping[str, str], *, services: Machine | None = None
) -> tuple[Operator, ...]:
    """Start the operators that are available and whose CRDs the API server serves.

    Args:
        plane: a running control plane; stops them with itself.
        environment: see `programs.find_operator`.
        services: where programs reach Services by name; None: nowhere, because there is no real node.

    Returns:
        the operators that run.

    Raises:
        RefusedError: see `programs.find_operator`.
        PlatformError: one did not start; carries the end of its output.
    """
    api = KubernetesApi(plane.client())
    started = []
    for module, start, kind in (
        (KUEUE, start_kueue, (KUEUE_API, "Workload")),
        (KUBERAY, partial(start_kuberay, services=services), _RAY_JOB),
    ):
        program = find_operator(module, environment)
        # Kueue looks for the RayJob CRD at its start only.
        if program is not None and api.serves(*kind) and api.serves(*_RAY_JOB):
            started.append(Operator(module, start(plane, program)))
    return tuple(started)


def start_kuberay(
    plane: ControlPlane, program: Path, *, proxy: str | None = None, services: Machine | None = None
) -> Process:
    """Start the KubeRay operator.

    Args:
        plane: the control plane.
        program: path of the operator.
        proxy: HTTP proxy to the dashboards of the Ray clusters; None: without `services` it reaches none, because this
            machine does not resolve the names of Services.
        services: see `start_operators`.

    Raises:
        PlatformError: see `start_operators`.
    """
    (port,) = free_ports(1)
    address = services.address if services else _LOOPBACK
    command: list[str | Path] = [
        *(services.prefix if services else ()),
        program,
        f"--kubeconfig={plane.kubeconfig}",
        "--enable-leader-election=false",
        "--metrics-addr=0",
        f"--health-probe-bind-address={address}:{port}",
    ]
    process = plane.run("kuberay-operator", command, environment={"HTTP_PROXY": proxy} if proxy else None)
    process.await_(lambda: _answers(port, address), seconds=_START_SECONDS)
    return process


def start_kueue(plane: ControlPlane, program: Path, *, configuration: Manifest | None = None) -> Process:
    """Start Kueue, and register its webhooks at the API server; one that was stopped may be started again.

    Args:
        plane: the control plane.
        program: path of the manager.
        configuration: its configuration, of which the parts for loopback are replaced; None: our chart's.

    Raises:
        PlatformError: see `start_operators`.
    """
    webhook_port, health_port = free_ports(2)
    certificates = plane.folder / "kueue-certificates"
    certificates.mkdir(mode=0o700, exist_ok=True)
    file = plane.folder / "kueue.yaml"
    text = kueue_admission.configuration(
        base=configuration or kueue_configuration(),
        webhook_port=webhook_port,
        health_port=health_port,
        certificates=certificates,
    )
    file.write_text(write_document(text), encoding="utf-8")
    api = KubernetesApi(plane.client())
    for manifest in kueue_admission.admission(webhook_port=webhook_port):
        # A field manager of its own keeps the fields that others applied to the same namespace and CRDs.
        api.apply(manifest, manager="kueue-admission")
    process = plane.run("kueue", [program, f"--config={file}", f"--kubeconfig={plane.kubeconfig}"])
    process.await_(lambda: _mounted(api, certificates), seconds=_START_SECONDS)
    process.await_(lambda: _answers(health_port), seconds=_START_SECONDS)
    return process


def _mounted(api: KubernetesApi, folder: Path) -> bool:
    """Copy Kueue's certificate from its Secret to its folder, as a kubelet mounts it; whether it is complete."""
    data = (api.read(kueue_admission.SECRET) or {}).get("data", {})
    for name in ("tls.key", "tls.crt"):  # Kueue waits for the certificate, so the key comes first
        if name not in data:
            return False
        file = folder / name
        file.touch(mode=0o600)
        file.write_bytes(base64.b64decode(data[name]))
    return True


def _answers(port: int, address: str = _LOOPBACK) -> bool:
    connection = HTTPConnection(address, port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()

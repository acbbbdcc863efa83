"""KubeRay's operator and Kueue beside a control plane: started as plain processes, and ended with it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path

import yaml

from infra.kube.api import KubernetesApi
from infra.lifecycle.sandbox import kueue_admission
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.lifecycle.sandbox.modules import KUBERAY, KUEUE, Module
from infra.lifecycle.sandbox.processes import Process, free_ports
from infra.lifecycle.sandbox.programs import find_operator
from infra.spec.cluster_names import KUEUE_API

_START_SECONDS = 60.0

_RAY_JOB = ("ray.io/v1", "RayJob")


def start_operators(plane: ControlPlane, environment: Mapping[str, str]) -> tuple[Module, ...]:
    """Start the operators that are there, where the API server knows the kinds they work on.

    Args:
        plane: which is up, and ends them with itself.
        environment: see `programs.find_operator`.

    Returns:
        those that run now.

    Raises:
        RefusedError: a variable names no program.
        StackError: one did not start; with the end of its output.
    """
    api = KubernetesApi(plane.client())
    started = []
    for module, start, kind in (
        (KUEUE, start_kueue, (KUEUE_API, "Workload")),
        (KUBERAY, start_kuberay, _RAY_JOB),
    ):
        program = find_operator(module, environment)
        # Kueue looks for RayJobs at its start, and takes none where there are none.
        if program is not None and api.serves(*kind) and api.serves(*_RAY_JOB):
            start(plane, program)
            started.append(module)
    return tuple(started)


def start_kuberay(plane: ControlPlane, program: Path, *, proxy: str | None = None) -> Process:
    """Start KubeRay's operator.

    Args:
        plane: the control plane.
        program: the operator.
        proxy: HTTP proxy through which it reaches the dashboards of the Ray clusters; None: it reaches none, because
            their names mean nothing on this machine.

    Raises:
        StackError: see `start_operators`.
    """
    (port,) = free_ports(1)
    command: list[str | Path] = [
        program,
        f"--kubeconfig={plane.kubeconfig}",
        "--enable-leader-election=false",
        "--metrics-addr=0",
        f"--health-probe-bind-address=127.0.0.1:{port}",
    ]
    process = plane.run("kuberay-operator", command, environment={"HTTP_PROXY": proxy} if proxy else None)
    process.await_(lambda: _answers(port), seconds=_START_SECONDS)
    return process


def start_kueue(plane: ControlPlane, program: Path) -> Process:
    """Start Kueue, with the configuration that our chart has, and lead the API server to its webhooks.

    Raises:
        StackError: see `start_operators`.
    """
    webhook_port, health_port = free_ports(2)
    certificates = plane.folder / "kueue-certificates"
    certificates.mkdir(mode=0o700)
    configuration = plane.folder / "kueue.yaml"
    text = kueue_admission.configuration(webhook_port=webhook_port, health_port=health_port, certificates=certificates)
    configuration.write_text(yaml.safe_dump(text), encoding="utf-8")
    api = KubernetesApi(plane.client())
    for manifest in kueue_admission.admission(webhook_port=webhook_port):
        # As an owner of its own: what others wrote of the same namespace and definitions stays.
        api.apply(manifest, manager="kueue-admission")
    process = plane.run("kueue", [program, f"--config={configuration}", f"--kubeconfig={plane.kubeconfig}"])
    process.await_(lambda: _mounted(api, certificates), seconds=_START_SECONDS)
    process.await_(lambda: _answers(health_port), seconds=_START_SECONDS)
    return process


def _mounted(api: KubernetesApi, folder: Path) -> bool:
    """Whether Kueue's certificate has been put where it reads it, as a kubelet would."""
    data = (api.read(kueue_admission.SECRET) or {}).get("data", {})
    for name in ("tls.key", "tls.crt"):  # what Kueue waits for comes last
        if name not in data:
            return False
        file = folder / name
        file.touch(mode=0o600)
        file.write_bytes(base64.b64decode(data[name]))
    return True


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()

"""The registry of a sandbox with real nodes: CNCF Distribution as a plain process, without TLS and login.

It answers at an address of this machine that the nodes reach. What it stores outlives the sandbox, so that an image is built
and pushed once.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import urllib3

from infra.lifecycle.sandbox.modules import cache_root
from infra.lifecycle.sandbox.processes import Process
from infra.spec.errors import RefusedError
from infra.spec.manifest_yaml import write_document

PORT = 5000
"""Port of the registry: fixed, because references to images contain it."""

QUIET = {"OTEL_TRACES_EXPORTER": "none"}
"""Environment variables: without them the registry reports its traces to a collector."""

_START_SECONDS = 60.0
_ANSWER_SECONDS = 2.0


def storage_folder(environment: Mapping[str, str]) -> Path:
    """Folder of the stored images.

    Args:
        environment: `RTP_REGISTRY` is the path; without it, `registry` beside `modules.cache_root`.
    """
    return Path(environment.get("RTP_REGISTRY") or cache_root(environment).parent / "registry").resolve()


def images_folder(folder: Path) -> Path:
    """Folder for the logs of builds, in a sandbox's folder."""
    return folder / "images"


def configuration(storage: Path, address: str) -> dict[str, object]:
    """The registry's configuration.

    Args:
        storage: folder of the stored images.
        address: address and port to listen at.
    """
    return {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(storage)}},
        "http": {"addr": address},
        "log": {"level": "warn"},
    }


class Starter(Protocol):
    """What starts programs in a folder and stops them with itself: a control plane."""

    @property
    def folder(self) -> Path:
        """Folder of its files."""
        ...

    def run(self, name: str, command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None) -> Process:
        """Start a program, see `ControlPlane.run`."""
        ...


def start_registry(plane: Starter, program: Path, *, address: str, storage: Path, port: int = PORT) -> str:
    """Start the registry, which is stopped with a control plane.

    Args:
        plane: a running control plane.
        program: path of the registry, see `programs.find_registry`.
        address: IP address of this machine that the nodes reach.
        storage: folder of the stored images; made if it is missing.
        port: port of the registry.

    Returns:
        address and port, as in references to images.

    Raises:
        RefusedError: the port is in use.
        PlatformError: it did not start; carries the end of its output.
    """
    host = f"{address}:{port}"
    require_free(address, port)
    storage.mkdir(parents=True, exist_ok=True)
    file = plane.folder / "registry.yaml"
    file.write_text(write_document(configuration(storage, host)), encoding="utf-8")
    process = plane.run("registry", [program, "serve", file], environment=QUIET)
    process.await_(lambda: answers(host), seconds=_START_SECONDS)
    return host


def require_free(address: str, port: int = PORT) -> None:
    """Refuse an address and port that another process listens at, or an address that this machine does not have.

    Raises:
        RefusedError: see above.
    """
    try:
        socket.create_server((address, port)).close()
    except OSError as error:
        raise RefusedError(
            f"the sandbox's registry cannot listen at {address}:{port}: {os.strerror(error.errno or 0)}",
            remedy=f"stop what listens there; `ss -ltnp sport = :{port}` names it",
        ) from error


def answers(host: str) -> bool:
    """Whether the registry serves its API."""
    try:
        answer = urllib3.request("GET", f"http://{host}/v2/", retries=False, timeout=_ANSWER_SECONDS)
    except urllib3.exceptions.HTTPError:
        return False
    return answer.status == 200


def containerd_hosts(host: str) -> Mapping[str, str]:
    """How containerd reaches the registry: text by path below its `config_path` (containerd, docs/hosts.md).

    Args:
        host: address and port of the registry.
    """
    url = f"http://{host}"
    return {f"{host}/hosts.toml": f'server = "{url}"\n\n[host."{url}"]\n  capabilities = ["pull", "resolve"]\n'}

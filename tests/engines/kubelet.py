"""Stands in for the kubelet of a node where no container runs: a process of this machine is the pod's.

It answers the API server's requests for the log of the pod with what the process prints, and brings a ConfigMap into the folder that
stands for the pod's mount. The API server, its authorization and its proxy to the node are real.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import IO
from urllib.parse import parse_qs, urlsplit

from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.manifest import Manifest, api_object
from tests.engines.kubernetes import Cluster
from tests.engines.servers import Handler, serving

_POLL_SECONDS = 0.05


class KubeletLog(ThreadingHTTPServer):
    """Serves one log, which grows while its process prints."""

    daemon_threads = True

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        own.load_cert_chain(
            plane.folder / "certificates" / "apiserver.crt", plane.folder / "certificates" / "apiserver.key"
        )
        self.socket = own.wrap_socket(self.socket, server_side=True)
        self.lines: list[str] = []
        self.is_over = threading.Event()

    def read(self, stream: IO[str]) -> None:
        """Take the lines of a process until it ends, each with its time."""
        for line in stream:
            self.lines.append(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}000Z {line}")
        self.is_over.set()


class _Handler(Handler):
    protocol_version = "HTTP/1.1"
    server: KubeletLog

    def do_GET(self) -> None:  # noqa: N802
        """The log of any container, followed to its end."""
        since = parse_qs(urlsplit(self.path).query).get("sinceTime", [""])[0]
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(OSError):  # the reader has gone
            sent = 0
            while not (self.server.is_over.is_set() and sent == len(self.server.lines)):
                for line in self.server.lines[sent:]:
                    sent += 1
                    if line[:19] >= since[:19]:
                        self.wfile.write(f"{len(line.encode()):x}\r\n{line}\r\n".encode())
                time.sleep(_POLL_SECONDS)
            self.wfile.write(b"0\r\n\r\n")


@contextmanager
def log_of(cluster: Cluster, plane: ControlPlane, pod: Manifest, stream: IO[str]) -> Iterator[KubeletLog]:
    """A pod on a node of its own, whose log is what a process prints."""
    server = KubeletLog(plane)
    threading.Thread(target=server.read, args=(stream,), daemon=True).start()
    node = api_object("v1", "Node", f"node-of-{pod['metadata']['name']}")
    address = [{"type": "InternalIP", "address": "127.0.0.1"}]
    kubelet = {"kubeletEndpoint": {"Port": server.server_port}}
    placed = {**pod, "spec": {**pod["spec"], "nodeName": node["metadata"]["name"], "terminationGracePeriodSeconds": 0}}
    with server, serving(server), cluster.applied(node):
        cluster.update_status(node, {"addresses": address, "daemonEndpoints": kubelet})
        with cluster.applied(placed):
            yield server


@contextmanager
def mounted(cluster: Cluster, config_map: Manifest, folder: Path) -> Iterator[None]:
    """Keep a folder equal to a ConfigMap as the kubelet does: files are links into a folder that a link names, which is replaced."""
    is_over = threading.Event()
    shown: dict[str, str] | None = None

    def keep() -> None:
        nonlocal shown
        number = 0
        while not is_over.wait(_POLL_SECONDS):
            found = cluster.read(config_map)
            files = {} if found is None else dict(found.get("data", {}))
            if files != shown:
                number, shown = number + 1, files
                _show(folder, files, number)

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _show(folder: Path, files: dict[str, str], number: int) -> None:
    behind = folder / f"..{number}"
    behind.mkdir(parents=True)
    for name, text in files.items():
        (behind / name).write_text(text, encoding="utf-8")
    replacement = folder / "..data_tmp"
    replacement.symlink_to(behind.name)
    replacement.replace(folder / "..data")
    for link in folder.iterdir():
        if not link.name.startswith("..") and link.name not in files:
            link.unlink()
    for name in files:
        with suppress(FileExistsError):
            (folder / name).symlink_to(f"..data/{name}")

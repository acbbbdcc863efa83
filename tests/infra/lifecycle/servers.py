"""A minimal local chart repository and OCI registry."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

TOKEN = "anonymous-token"
HELM_CONFIG = "application/vnd.cncf.helm.config.v1+json"
IMAGE_INDEX = "application/vnd.oci.image.index.v1+json"
IMAGE_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclass
class Site:
    """Content of the server.

    Attributes:
        host: host:port, without scheme.
        pages: body and content type by path.
        headers: more headers by path.
        needs_token: requests below /v2/ are answered after a token was fetched.
        login: requests below /v2/ are answered with this, base64 of user:password, as ECR does; empty asks for nothing.
        requests: paths that were asked for, in order.
    """

    host: str = ""
    pages: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    needs_token: bool = False
    login: str = ""
    requests: list[str] = field(default_factory=list)

    def add_index(self, text: str) -> None:
        """Add a chart repository's index."""
        self.pages["/charts/index.yaml"] = (text.encode(), "text/yaml")

    def add_manifest(self, name: str, tag: str, manifest: dict[str, Any]) -> str:
        """Add an image or an artifact; returns its digest."""
        body = json.dumps(manifest).encode()
        self.pages[f"/v2/{name}/manifests/{tag}"] = (body, manifest["mediaType"])
        return f"sha256:{hashlib.sha256(body).hexdigest()}"

    def add_chart(self, name: str, tag: str, archive_digest: str) -> None:
        """Add a Helm chart as an OCI artifact."""
        layer = {"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "digest": archive_digest}
        manifest = {"mediaType": IMAGE_MANIFEST, "config": {"mediaType": HELM_CONFIG}, "layers": [layer]}
        self.add_manifest(name, tag, manifest)


@contextmanager
def served() -> Iterator[Site]:
    """A site that serves until the context exits."""
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.requests.append(self.path)
            if self.path.startswith("/token"):
                self._answer(200, json.dumps({"token": TOKEN}).encode(), "application/json")
            elif (
                site.needs_token and self.path.startswith("/v2/") and self.headers["Authorization"] != f"Bearer {TOKEN}"
            ):
                challenge = f'Bearer realm="http://{site.host}/token",service="registry",scope="repository:x:pull"'
                self._answer(401, b"", "text/plain", {"WWW-Authenticate": challenge})
            elif site.login and self.path.startswith("/v2/") and self.headers["Authorization"] != f"Basic {site.login}":
                self._answer(401, b"", "text/plain", {"WWW-Authenticate": f'Basic realm="http://{site.host}/"'})
            elif self.path in site.pages:
                body, kind = site.pages[self.path]
                accepted = self.headers["Accept"] == "*/*" or kind in self.headers["Accept"]
                self._answer(200 if accepted else 406, body, kind, site.headers.get(self.path, {}))
            else:
                self._answer(404, b"", "text/plain")

        def _answer(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.host = f"127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield site
        server.shutdown()

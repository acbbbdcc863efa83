"""A minimal local chart repository and OCI registry."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.engines.servers import Handler, http_server

TOKEN = "anonymous-token"
HELM_CONFIG = "application/vnd.cncf.helm.config.v1+json"
IMAGE_INDEX = "application/vnd.oci.image.index.v1+json"
IMAGE_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclass
class Site:
    """Content of the server at `host`, by path: pages with their types, more headers, and statuses of errors.

    Attributes:
        needs_token: requests below /v2/ are answered after a token was fetched.
        login: requests below /v2/ are answered with this, base64 of user:password, as ECR does; empty asks for nothing.
        requests: paths that were asked for, in order.
    """

    host: str = ""
    pages: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    needs_token: bool = False
    login: str = ""
    requests: list[str] = field(default_factory=list)

    def add_index(self, text: str) -> None:
        self.pages["/charts/index.yaml"] = (text.encode(), "text/yaml")

    def add_tags(self, name: str, *tags: str) -> None:
        self.pages[f"/v2/{name}/tags/list?n=1000"] = (json.dumps({"tags": tags}).encode(), "application/json")

    def add_manifest(self, name: str, tag: str, manifest: dict[str, Any]) -> str:
        """Add an image or an artifact; returns its digest."""
        body = json.dumps(manifest).encode()
        self.pages[f"/v2/{name}/manifests/{tag}"] = (body, manifest["mediaType"])
        return f"sha256:{hashlib.sha256(body).hexdigest()}"

    def add_chart(self, name: str, tag: str, archive_digest: str, **fields: str) -> None:
        """Add a Helm chart as an OCI artifact, with fields of its Chart.yaml."""
        config = json.dumps(fields).encode()
        digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
        self.pages[f"/v2/{name}/blobs/{digest}"] = (config, HELM_CONFIG)
        layer = {"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "digest": archive_digest}
        manifest = {
            "mediaType": IMAGE_MANIFEST,
            "config": {"mediaType": HELM_CONFIG, "digest": digest},
            "layers": [layer],
        }
        self.add_manifest(name, tag, manifest)


class _Handler(Handler):
    """Answers from a site; a subclass per server has the site."""

    site: Site

    def do_GET(self) -> None:  # noqa: N802
        site = self.site
        site.requests.append(self.path)
        if self.path.startswith("/token"):
            self._answer(200, json.dumps({"token": TOKEN}).encode(), "application/json")
        elif challenge := self._challenge():
            self._answer(401, b"", "text/plain", {"WWW-Authenticate": challenge})
        elif self.path in site.statuses:
            self._answer(site.statuses[self.path], b"", "text/plain")
        elif self.path in site.pages:
            body, kind = site.pages[self.path]
            wanted = self.headers.get("Accept", "*/*")
            accepted = wanted == "*/*" or kind in wanted
            self._answer(200 if accepted else 406, body, kind, site.headers.get(self.path, {}))
        else:
            self._answer(404, b"", "text/plain")

    do_HEAD = do_GET  # noqa: N815  # the name that http.server calls

    def _challenge(self) -> str:
        """The challenge for a request that is not authorised; empty if it is."""
        site, given = self.site, self.headers["Authorization"]
        if not self.path.startswith("/v2/"):
            return ""
        if site.needs_token and given != f"Bearer {TOKEN}":
            return f'Bearer realm="http://{site.host}/token",service="registry",scope="repository:x:pull"'
        if site.login and given != f"Basic {site.login}":
            return f'Basic realm="http://{site.host}/"'
        return ""

    def _answer(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def served() -> Iterator[Site]:
    """A site that serves until the context exits."""
    site = Site()
    handler = type("Handler", (_Handler,), {"site": site})
    with http_server(handler) as url:
        site.host = url.removeprefix("http://")
        yield site

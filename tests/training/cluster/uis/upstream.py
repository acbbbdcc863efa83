"""A server in the place of a UI: it says what it was asked, and answers WebSockets."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.engines.servers import Handler, http_server


class Server(NamedTuple):
    """A server that runs; it answers each request with its head and body as JSON, and echoes after an upgrade."""

    port: int
    name: str


class Reply(NamedTuple):
    """An answer of a local port."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def seen(self) -> dict[str, str]:
        """The fields that the server got, by name in lower case; its own name is `server`."""
        found: dict[str, str] = json.loads(self.body)
        return found


class _Handler(Handler):
    name = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # noqa: N802
        """Answer with what was asked, or switch protocols and echo one message."""
        if self.headers.get("Upgrade"):
            self.send_response(101)
            self.send_header("Upgrade", "echo")
            self.send_header("Connection", "Upgrade")
            self.end_headers()
            self.wfile.write(self.rfile.readline().upper())
            self.close_connection = True
            return
        length = int(self.headers.get("Content-Length", 0))
        asked = {key.lower(): value for key, value in self.headers.items()}
        seen = {**asked, "server": self.name, "body": self.rfile.read(length).decode()}
        self.answer(200, json.dumps(seen).encode())

    def do_POST(self) -> None:  # noqa: N802
        self.do_GET()


@contextmanager
def upstream(name: str = "ui") -> Iterator[Server]:
    with http_server(type("Handler", (_Handler,), {"name": name})) as url:
        yield Server(int(url.rpartition(":")[2]), name)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: object) -> None:
        """Keep the answer as it is."""


def ask(url: str, *, data: bytes | None = None, **headers: str) -> Reply:
    """A request that follows no redirect; an underscore in a field's name is a hyphen."""
    request = urllib.request.Request(  # noqa: S310 - a port of this machine
        url, data=data, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=30) as answer:
            return Reply(answer.status, dict(answer.headers), answer.read().decode())
    except urllib.error.HTTPError as answer:
        return Reply(answer.code, dict(answer.headers), answer.read().decode())


def log_in(url: str) -> tuple[str, str]:
    """Open the URL with the key as a browser does; returns the cookie and the page that it leads to."""
    reply = ask(url)
    assert reply.status == 303, reply
    return reply.headers["Set-Cookie"].partition(";")[0], reply.headers["Location"]

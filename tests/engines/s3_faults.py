"""An HTTP proxy before the S3 API that fails requests as a bad store does."""

from __future__ import annotations

import http.client
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.engines.s3 import S3Api
from tests.engines.servers import Handler, serving

_ERRORS = {403: "AccessDenied", 500: "InternalError", 501: "NotImplemented", 503: "SlowDown"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request before it is answered.

    Attributes:
        method: e.g. `PUT`.
        path: decoded, with the bucket, without the query.
        query: of the URL.
        headers: by name in lower case.
    """

    method: str
    path: str
    query: str
    headers: dict[str, str]


Fault = Callable[[Request], int | str | None]
"""What to do with a request: an HTTP status to answer, `cut` to close the connection in the middle of its body, `hang` to answer nothing
until the proxy closes, or None to pass it on."""


@dataclass
class FaultyS3:
    """A running proxy.

    Attributes:
        endpoint: URL of the proxy.
        fault: decides about each request; replace it at any time.
        requests: those that came so far.
        failed: number of requests that were not passed on.
        change: changes the body of an answer that is passed on.
    """

    endpoint: str = ""
    fault: Fault = lambda _request: None
    requests: list[Request] = field(default_factory=list)
    failed: int = 0
    change: Callable[[Request, bytes], bytes] = lambda _request, body: body
    _is_over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def faulty_s3(api: S3Api) -> Iterator[FaultyS3]:
    """A proxy before an S3 API, which passes everything on until `fault` is set."""
    proxy = FaultyS3()
    with _Server(proxy, api.endpoint) as server, serving(server):
        proxy.endpoint = f"http://127.0.0.1:{server.server_port}"
        try:
            yield proxy
        finally:
            proxy._is_over.set()


class _Server(ThreadingHTTPServer):
    """A server that knows what to do with requests, and where to pass them on."""

    daemon_threads = True

    def __init__(self, proxy: FaultyS3, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy
        self.upstream = upstream.removeprefix("http://")

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's
        """Say nothing of a client that was killed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(Handler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _answer(self) -> None:
        proxy, parts = self.server.proxy, urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(method=self.command, path=unquote(parts.path), query=parts.query, headers=headers)
        proxy.requests.append(request)
        what = proxy.fault(request)
        if what is None:
            self._pass_on(request)
            return
        proxy.failed += 1
        self.close_connection = True
        size = int(headers.get("content-length", "0"))
        if what == "cut":
            self.rfile.read(size // 2)
        elif what == "hang":
            proxy._is_over.wait()
        else:
            self.rfile.read(size)
            self._refuse(int(what))

    def _refuse(self, status: int) -> None:
        code = _ERRORS[status]
        body = f"<Error><Code>{code}</Code><Message>injected {code}</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _pass_on(self, request: Request) -> None:
        body = self.rfile.read(int(request.headers.get("content-length", "0")))
        connection = http.client.HTTPConnection(self.server.upstream, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
        connection.request(self.command, self.path, body=body, headers=headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status < 300:
            content = self.server.proxy.change(request, content)
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"connection", "transfer-encoding", "date", "server", "content-length"}:
                self.send_header(name, value)
        size = answer.getheader("content-length", "0") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", size)
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

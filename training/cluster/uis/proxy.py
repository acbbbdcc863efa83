"""A reverse proxy at a local port, which logs requests in: the browser never has the password."""

from __future__ import annotations

import socket
import socketserver
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType

from infra.spec.errors import RefusedError
from training.cluster.uis.gate import Gate, answer
from training.cluster.uis.head import END, RequestHead

_HOST = "127.0.0.1"
_LONGEST_HEAD = 65536
_HEAD_SECONDS = 60.0
_CHUNK = 65536


@dataclass(frozen=True)
class Upstream:
    """Where requests go.

    Attributes:
        port: local port that is forwarded.
        authorization: value of the field Authorization; None for none.
    """

    port: int
    authorization: str | None = field(repr=False)


class LocalProxy:
    """The proxy of one UI, which serves within a `with` block.

    WebSockets and streamed answers pass through: after the head of a request, bytes are copied in both directions.

    Attributes:
        upstream: where requests go; None while the connection is down.
    """

    def __init__(self, gate: Gate, *, title: str) -> None:
        """Bind the port.

        Args:
            gate: the port, and who may use it.
            title: what it serves, for messages.

        Raises:
            RefusedError: the port is in use.
        """
        self._gate, self._title = gate, title
        self.upstream: Upstream | None = None
        try:
            self._server = _Server((_HOST, gate.port), self)
        except OSError as error:
            raise RefusedError(
                f"cannot listen on port {gate.port} of this machine: {error.strerror}", remedy="set PORT=…, or omit it"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    def __enter__(self) -> LocalProxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def handle(self, client: socket.socket) -> None:
        """Serve the one request of a connection."""
        try:
            raw, rest = _read_head(client)
            head = RequestHead.parse(raw)
        except ValueError:
            client.sendall(answer(400, "Bad Request", "not a request of HTTP/1.1"))
            return
        refusal = self._gate.answer(head)
        if refusal is not None:
            client.sendall(refusal)
            return
        upstream = self.upstream
        try:
            if upstream is None:
                raise ConnectionError
            server = socket.create_connection((_HOST, upstream.port))
        except OSError:
            again = ("Refresh", "2")
            client.sendall(answer(503, "Service Unavailable", f"connecting to {self._title} …", again))
            return
        passed = head.passed_on(authorization=upstream.authorization, without_cookie=self._gate.cookie)
        with server:
            server.sendall(passed.encoded() + rest)
            _exchange(client, server)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], proxy: LocalProxy) -> None:
        self.proxy = proxy
        super().__init__(address, _Connection)


class _Connection(socketserver.BaseRequestHandler):
    server: _Server
    request: socket.socket

    def handle(self) -> None:
        """Serve the connection; either end may break it."""
        with suppress(OSError):
            self.server.proxy.handle(self.request)


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """The head of the request, and what was read of its body.

    Raises:
        ValueError: the head is too long.
        OSError: the client ends the connection, or sends nothing.
    """
    client.settimeout(_HEAD_SECONDS)
    read = b""
    while END not in read:
        if len(read) > _LONGEST_HEAD:
            raise ValueError
        part = client.recv(_CHUNK)
        if not part:
            raise ConnectionError
        read += part
    client.settimeout(None)
    head, _, rest = read.partition(END)
    return head, rest


def _exchange(client: socket.socket, server: socket.socket) -> None:
    """Copy in both directions until the server ends the connection."""
    upward = threading.Thread(target=_copy, args=(client, server), daemon=True)
    upward.start()
    _copy(server, client)
    for end in (client, server):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    upward.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)

"""A TCP proxy on loopback that a test can cut and restore, or that cuts connections itself, as a bad network does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml


class Proxy:
    """Passes bytes between its clients and one server.

    Attributes:
        port: its port.
        was_cut: number of connections that it has cut itself.
    """

    def __init__(self, server_port: int, *, cuts: int = 0, after: int = 0) -> None:
        """It cuts `cuts` connections whose client has sent more than `after` bytes, and lets every later one through."""
        self._server_port = server_port
        self._cuts, self._after = cuts, after
        self.was_cut = 0
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()

    def cut(self) -> None:
        """Break every connection and refuse new ones."""
        with suppress(OSError):  # wakes the thread that waits in accept
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._sockets.clear()

    def restore(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listen()

    def _listen(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._server_port))
            self._sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink, source is near), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_client: bool) -> None:  # noqa: FBT001
        passed = 0
        with suppress(OSError):
            while data := source.recv(65536):
                passed += len(data)
                if is_client and passed > self._after and self._cuts > 0:
                    self._cuts -= 1
                    self.was_cut += 1
                    source.shutdown(socket.SHUT_RDWR)
                    sink.shutdown(socket.SHUT_RDWR)
                    return
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def proxied(kubeconfig: Path, folder: Path) -> Iterator[tuple[Proxy, Path]]:
    """A proxy before the API server of a kubeconfig, and a kubeconfig of the proxy in a folder."""
    document = yaml.safe_load(kubeconfig.read_text())
    reached = document["clusters"][0]["cluster"]
    server, _, port = reached["server"].rpartition(":")
    with Proxy(int(port)) as proxy:
        reached["server"] = f"{server}:{proxy.port}"
        file = folder / "kubeconfig"
        file.write_text(yaml.safe_dump(document))
        yield proxy, file

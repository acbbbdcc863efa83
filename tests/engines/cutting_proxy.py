"""A TCP proxy on loopback that cuts connections after a number of bytes, as a bad network does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class CuttingProxy:
    """A running proxy.

    Attributes:
        port: its port.
        cuts: connections that are still to be cut; every later one is let through.
        was_cut: number of connections that were cut.
    """

    port: int
    cuts: int
    was_cut: int = 0
    _listener: socket.socket = field(kw_only=True, repr=False)

    def close(self) -> None:
        """Refuse every new connection from now on."""
        with suppress(OSError):  # closed already
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def cutting_proxy(upstream: int, *, after: int, cuts: int) -> Iterator[CuttingProxy]:
    """Forward connections to a port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = CuttingProxy(listener.getsockname()[1], cuts, _listener=listener)
        threading.Thread(target=_serve, args=(listener, upstream, after, proxy), daemon=True).start()
        yield proxy


def _serve(listener: socket.socket, upstream: int, after: int, proxy: CuttingProxy) -> None:
    with suppress(OSError):  # closed at the end
        while True:
            client, _ = listener.accept()
            server = socket.create_connection(("127.0.0.1", upstream))
            threading.Thread(target=_copy, args=(server, client), daemon=True).start()
            threading.Thread(target=_copy_some, args=(client, server, after, proxy), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError), source, target:
        while data := source.recv(65536):
            target.sendall(data)


def _copy_some(source: socket.socket, target: socket.socket, after: int, proxy: CuttingProxy) -> None:
    with suppress(OSError), source, target:
        passed = 0
        while data := source.recv(65536):
            passed += len(data)
            if passed > after and proxy.cuts > 0:
                proxy.cuts -= 1
                proxy.was_cut += 1
                for end in (source, target):
                    end.shutdown(socket.SHUT_RDWR)
                return
            target.sendall(data)

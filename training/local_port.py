"""A port of this machine for something that a user opens."""

from __future__ import annotations

import socket
from contextlib import suppress

from infra.spec.errors import RefusedError


def local_port(wanted: int, *, usual: int) -> int:
    """A free port of this machine.

    Args:
        wanted: the port that the user asked for; 0 takes the usual one, or another if it is in use.
        usual: the usual port.

    Raises:
        RefusedError: the wanted port is in use.
    """
    for port in (wanted,) if wanted else (usual, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found: int = probe.getsockname()[1]
                return found
    raise RefusedError(f"port {wanted} of this machine is in use", remedy="set PORT=…, or omit it")

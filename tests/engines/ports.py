"""Ports for servers of tests."""

from __future__ import annotations

import random
import socket

_PORTS = range(20_000, 32_000)
"""Below the ports that Linux and macOS give to outgoing connections, which would take one before its server binds it."""


def free_port() -> int:
    """A port of loopback that is free now."""
    while True:
        port = random.choice(_PORTS)  # another process of the suite looks for one at the same time
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port

"""Which of this machine's network interfaces leads to another one."""

from __future__ import annotations

import socket

import psutil


def interface_towards(address: str) -> str | None:
    """Name of the interface whose address this machine would speak to `address` from; None where the system cannot tell.

    Gloo takes the interface that the host's own name leads to, which on many machines is loopback and in a container may
    be an address that nobody has.

    Args:
        address: host name or IP address; no packet is sent to it.
    """
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(address, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            own = probe.getsockname()[0]
    except OSError:
        return None
    for name, addresses in psutil.net_if_addrs().items():
        if any(known.address == own for known in addresses):
            return name
    return None

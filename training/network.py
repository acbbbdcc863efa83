"""Selects the network interface to another host, and free ports."""

from __future__ import annotations

import socket

import psutil


def interface_towards(address: str) -> str | None:
    """Name of the interface with the source address for packets to `address`; None if there is no route.

    Gloo's default is the interface that the hostname resolves to, which on many machines is loopback, and in a container may not exist.

    Args:
        address: host name or IP address. No packet is sent.
    """
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(address, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            source = probe.getsockname()[0]
    except OSError:
        return None
    for name, addresses in psutil.net_if_addrs().items():
        if any(candidate.address == source for candidate in addresses):
            return name
    return None


def free_port(host: str) -> int:
    """A port of this machine's address `host` that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])

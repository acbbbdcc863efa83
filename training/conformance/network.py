"""Which servers a pod reaches: one that its network policies allow, and one that they do not."""

from __future__ import annotations

import socket

from training.conformance.facts import NetworkFacts

_SECONDS = 10.0
"""A policy drops packets without an answer; inside a cluster a connection takes milliseconds."""


def network_facts(*, allowed: str, denied: str) -> NetworkFacts:
    """Connect to both.

    Args:
        allowed: `host:port` of a server that a team's pods may reach.
        denied: of one that they may not.
    """
    return NetworkFacts(
        allowed=allowed,
        allowed_error=_connection_error(allowed),
        denied=denied,
        denied_error=_connection_error(denied),
        denied_is_known=_has_address(denied),
    )


def _connection_error(server: str) -> str:
    """Why there is no connection; empty if there is one."""
    try:
        with socket.create_connection(_parts(server), timeout=_SECONDS):
            return ""
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__


def _has_address(server: str) -> bool:
    """Whether the name of a server has an address; otherwise it is no policy that keeps it from being reached."""
    try:
        return bool(socket.getaddrinfo(*_parts(server), type=socket.SOCK_STREAM))
    except socket.gaierror:
        return False


def _parts(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    return host, int(port)

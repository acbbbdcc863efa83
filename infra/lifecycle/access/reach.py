"""Whether this machine reaches the API server of an environment, and how."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address
from typing import Protocol
from urllib.parse import urlsplit

import urllib3

from infra.kube.connection import API_SERVER, api_server
from infra.lifecycle.access.tunnel import missing_programs
from infra.lifecycle.stack.stage import is_private
from infra.spec.settings.stack import StackSettings

_CONNECT_SECONDS = 5.0
_ADDRESS_SERVICE = "https://checkip.amazonaws.com"
"""Answers with the address that a request came from (AWS documents it for security group rules)."""


_AS_ITS_OWNER = (
    f"work from a network that reaches the existing cluster, or set {API_SERVER} to a tunnel; once the stack has nodes, `make tunnel` "
    "opens one"
)


class Probe(Protocol):
    """What this machine reaches."""

    def connect(self, url: str) -> str | None:
        """Why no connection to the URL's host and port is possible; None if one is."""
        ...

    def public_address(self) -> IPv4Address | None:
        """The address from which this machine reaches the internet; None if it cannot be told."""
        ...

    def missing_programs(self) -> tuple[str, ...]:
        """Programs that a tunnel needs and this machine lacks."""
        ...


class ThisMachine:
    """The probe of this machine."""

    def connect(self, url: str) -> str | None:
        """See `Probe`."""
        parts = urlsplit(url)
        try:
            socket.create_connection((str(parts.hostname), parts.port or 443), _CONNECT_SECONDS).close()
        except OSError as error:
            return str(error)
        return None

    def public_address(self) -> IPv4Address | None:
        """See `Probe`."""
        try:
            answer = urllib3.request("GET", _ADDRESS_SERVICE, timeout=_CONNECT_SECONDS, retries=False)
            return IPv4Address(answer.data.decode().strip())
        except (urllib3.exceptions.HTTPError, AddressValueError, UnicodeDecodeError):
            return None

    def missing_programs(self) -> tuple[str, ...]:
        """See `Probe`."""
        return missing_programs()


def can_connect(endpoint: str, probe: Probe) -> str | None:
    """Why this machine does not reach a cluster's endpoint, or RTP_API_SERVER in its place; None if it does."""
    return probe.connect(api_server() or endpoint)


def obstacles(settings: StackSettings, endpoint: str | None, probe: Probe) -> Iterator[tuple[str, str]]:
    """What keeps this machine from the API server, with the remedy.

    Args:
        settings: the environment.
        endpoint: URL of the API server; None before the cluster exists.
        probe: what this machine reaches.
    """
    if endpoint is not None and (why := can_connect(endpoint, probe)) is None:
        return
    if settings.cluster.is_shared:
        if endpoint is not None:
            yield f"{api_server() or endpoint} does not answer: {why}", _AS_ITS_OWNER
    elif is_private(settings):
        yield from _without_tunnel(probe)
    elif endpoint is not None:
        yield f"{api_server() or endpoint} does not answer: {why}", _remedy_for_address(settings, probe)
    elif (address := probe.public_address()) and not any(address in cidr for cidr in settings.cluster.public_cidrs):
        ranges = ", ".join(map(str, settings.cluster.public_cidrs))
        yield (
            f"this machine's address is {address}; cluster.public_cidrs is {ranges}",
            f"add {address}/32 to cluster.public_cidrs, or work from one of these ranges",
        )


def _without_tunnel(probe: Probe) -> Iterator[tuple[str, str]]:
    if missing := probe.missing_programs():
        remedy = (
            "install the AWS CLI, version 2, and its Session Manager plugin; or work from a network of "
            f"cluster.client_cidrs that is connected to the VPC; or set {API_SERVER} to a tunnel of your own"
        )
        yield f"the endpoint is private, and a tunnel to it needs {' and '.join(missing)}, not on PATH", remedy


def _remedy_for_address(settings: StackSettings, probe: Probe) -> str:
    address = probe.public_address()
    if address is None or any(address in cidr for cidr in settings.cluster.public_cidrs):
        return "check network and proxy of this machine"
    return f"this machine's address, {address}, is not in cluster.public_cidrs: add it from a machine that is"

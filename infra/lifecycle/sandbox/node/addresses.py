"""Addresses of a sandbox with real nodes."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from infra.spec.errors import RefusedError

RANGES = tuple(IPv4Network(f"10.{second}.0.0/16") for second in range(208, 224))
"""Address ranges for sandboxes; each takes the first that this machine does not route yet."""

CLUSTER_DOMAIN = "cluster.local"

_FIRST_NODE = 11
_PREFIX = 24


@dataclass(frozen=True)
class Addresses:
    """The addresses of one sandbox: the first /24 of its range is the nodes' network, the others are for pods, one per node.

    Attributes:
        range: all of them.
    """

    range: IPv4Network

    @property
    def host(self) -> str:
        """This machine: the API server listens here."""
        return self._in_first(1)

    @property
    def services(self) -> str:
        """The namespace of the bridge: CoreDNS listens here."""
        return self._in_first(2)

    def node(self, index: int) -> str:
        """A node, counted from 0."""
        return self._in_first(_FIRST_NODE + index)

    def pods(self, index: int) -> IPv4Network:
        """The network of a node's pods."""
        return list(self.range.subnets(new_prefix=_PREFIX))[index + 1]

    def with_prefix(self, address: str) -> str:
        """An address with the length of the nodes' network, as `ip address add` expects it."""
        return f"{address}/{_PREFIX}"

    def _in_first(self, number: int) -> str:
        return str(self.range.network_address + number)


def free_addresses(taken: Iterable[IPv4Network]) -> Addresses:
    """The first range that overlaps none of the taken ones.

    Raises:
        RefusedError: there is none.
    """
    networks = list(taken)
    for candidate in RANGES:
        if not any(candidate.overlaps(network) for network in networks):
            return Addresses(candidate)
    raise RefusedError(
        f"a real node needs a /16 of addresses that this machine does not route, and all from {RANGES[0]} to {RANGES[-1]} are in use",
        remedy="stop another sandbox or VPN that uses one of them (ip -4 route), or run without --real",
    )


def routed_networks() -> tuple[IPv4Network, ...]:
    """The networks that this machine has a route to, without the default route."""
    answer = subprocess.run(
        ["ip", "-json", "-4", "route", "show", "table", "all"], check=True, capture_output=True, text=True
    ).stdout
    found = (route["dst"] for route in json.loads(answer or "[]") if route["dst"] != "default")
    return tuple(IPv4Network(destination, strict=False) for destination in found)


def name_of(folder: Path) -> str:
    """The name of a sandbox's cgroup and of its link on this machine: follows from its folder, so it needs no record."""
    return f"rtp-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]}"

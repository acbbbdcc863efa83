"""Evaluates network policies as documented (Kubernetes, "Network Policies").

A pod is non-isolated in a direction unless a policy of that direction selects it; an isolated pod allows what at least
one of these policies allows. A connection between two pods must be allowed at both ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any, Literal

from infra.spec.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class Pod:
    """Namespace and labels of a pod."""

    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)


End = Pod | str
"""A pod, or an address outside the pod network."""


@dataclass(frozen=True)
class PolicySet:
    """A set of network policies."""

    policies: Sequence[Manifest]

    def allows(self, source: End, target: End, port: int, protocol: str = "TCP") -> bool:
        """Whether `source` may open a connection to that port of `target`."""
        return self._allows_at(source, target, "Egress", port, protocol) and self._allows_at(
            target, source, "Ingress", port, protocol
        )

    def _allows_at(
        self, end: End, peer: End, direction: Literal["Ingress", "Egress"], port: int, protocol: str
    ) -> bool:
        if isinstance(end, str):
            return True
        selecting = [
            one["spec"]
            for one in self.policies
            if one["metadata"]["namespace"] == end.namespace
            and direction in one["spec"]["policyTypes"]
            and _matches(one["spec"]["podSelector"], end.labels)
        ]
        side = "to" if direction == "Egress" else "from"
        rules = [rule for spec in selecting for rule in spec.get(direction.lower(), [])]
        return not selecting or any(
            _has_port(rule.get("ports"), port, protocol) and any(_is_peer(one, peer) for one in rule[side])
            for rule in rules
        )


def _matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}, "policies use matchLabels only"
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def _has_port(ports: Sequence[Mapping[str, Any]] | None, port: int, protocol: str) -> bool:
    return ports is None or any(one["port"] == port and one["protocol"] == protocol for one in ports)


def _is_peer(peer: Mapping[str, Any], end: End) -> bool:
    if isinstance(end, str):
        block = peer.get("ipBlock")
        return (
            block is not None
            and ip_address(end) in ip_network(block["cidr"])
            and not any(ip_address(end) in ip_network(one) for one in block.get("except", []))
        )
    if "ipBlock" in peer:
        return False
    namespace = {"kubernetes.io/metadata.name": end.namespace}
    return _matches(peer["namespaceSelector"], namespace) and _matches(peer.get("podSelector", {}), end.labels)

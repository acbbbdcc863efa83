"""Evaluates network policies as documented (Kubernetes, "Network Policies").

A pod is non-isolated in a direction unless a policy of that direction selects it; an isolated pod allows what at least
one of these policies allows. A connection between two pods must be allowed at both ends.

Kubernetes means blocks of addresses for what is outside the cluster, and leaves open whether they match pods. The VPC CNI compares
them with every address, other engines only with those outside. What must hold on both can be evaluated both ways. A connection to
a Service is one to its cluster IP at the pod that opens it; here it is written as an address, or as the pod behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any, Literal

from infra.spec.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class Pod:
    """Namespace, labels and address of a pod; on EKS pods have addresses of the private subnets."""

    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = "10.16.20.5"


End = Pod | str
"""A pod, or an address of something else."""


@dataclass(frozen=True)
class PolicySet:
    """A set of network policies.

    Attributes:
        policies: the policies.
        blocks_match_pods: blocks of addresses are compared with those of pods, as the VPC CNI does.
    """

    policies: Sequence[Manifest]
    blocks_match_pods: bool = True

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
            _has_port(rule.get("ports"), port, protocol) and any(self._is_peer(one, peer) for one in rule[side])
            for rule in rules
        )

    def _is_peer(self, peer: Mapping[str, Any], end: End) -> bool:
        block = peer.get("ipBlock")
        if isinstance(end, str):
            return block is not None and _is_in(block, end)
        if block is not None:
            return self.blocks_match_pods and _is_in(block, end.address)
        namespace = {"kubernetes.io/metadata.name": end.namespace}
        return _matches(peer["namespaceSelector"], namespace) and _matches(peer.get("podSelector", {}), end.labels)


def _matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}, "policies use matchLabels only"
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def _has_port(ports: Sequence[Mapping[str, Any]] | None, port: int, protocol: str) -> bool:
    return ports is None or any(one["port"] == port and one["protocol"] == protocol for one in ports)


def _is_in(block: Mapping[str, Any], address: str) -> bool:
    return ip_address(address) in ip_network(block["cidr"]) and not any(
        ip_address(address) in ip_network(one) for one in block.get("except", [])
    )

"""Which pods a NetworkPolicy means: label selectors, and the pods that have an address."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.spec.manifest import Manifest

_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod with an address of its own.

    Attributes:
        namespace: its namespace.
        labels: its labels.
        address: its IPv4 address.
        ports: number of a container's port by protocol and name, e.g. `("TCP", "metrics")`.
    """

    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str
    ports: Mapping[tuple[str, str], int] = field(default_factory=dict)


def addressed_pods(manifests: Iterable[Mapping[str, Any]]) -> Iterator[Pod]:
    """The pods that have an address of their own: none on the host network, and none that has ended, whose address another may get."""
    for manifest in manifests:
        status = manifest.get("status", {})
        address = status.get("podIP")
        if address and not manifest["spec"].get("hostNetwork") and status.get("phase") not in _ENDED:
            yield pod_at(address, manifest)


def pod_at(address: str, manifest: Mapping[str, Any]) -> Pod:
    """The pod of a manifest, with an address."""
    spec, metadata = manifest["spec"], manifest["metadata"]
    # A restartable init container is a sidecar, whose ports are used as well.
    containers = [*spec["containers"], *spec.get("initContainers", [])]
    return Pod(
        namespace=metadata["namespace"],
        labels=metadata.get("labels", {}),
        address=address,
        ports={
            (port.get("protocol", "TCP"), port["name"]): port["containerPort"]
            for container in containers
            for port in container.get("ports", [])
            if "name" in port
        },
    )


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects something with these labels; an empty one selects everything."""
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()) and all(
        _holds(expression, labels) for expression in selector.get("matchExpressions") or []
    )


def selecting(policies: Iterable[Manifest], pod: Pod, direction: str) -> list[Manifest]:
    """The policies that isolate a pod in a direction, `Ingress` or `Egress`."""
    return [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == pod.namespace
        and direction in policy["spec"]["policyTypes"]
        and matches(policy["spec"].get("podSelector", {}), pod.labels)
    ]


def peers(
    peer: Mapping[str, Any], *, namespace: str, pods: Iterable[Pod], namespaces: Mapping[str, Mapping[str, str]]
) -> Iterator[Pod]:
    """The pods that a peer of a policy selects.

    Args:
        peer: a NetworkPolicyPeer without `ipBlock`.
        namespace: namespace of the policy, in which a peer without namespaceSelector selects.
        pods: all pods.
        namespaces: labels of each namespace.
    """
    selector = peer.get("namespaceSelector")
    for pod in pods:
        is_in = pod.namespace == namespace if selector is None else matches(selector, namespaces.get(pod.namespace, {}))
        if is_in and matches(peer.get("podSelector") or {}, pod.labels):
            yield pod


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or []
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels

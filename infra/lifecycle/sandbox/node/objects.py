"""Objects that a cluster with real nodes needs, and EKS provides."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from infra.lifecycle.sandbox.layout import DNS_SERVICE
from infra.lifecycle.sandbox.node.request import RealNode
from infra.spec.manifest import Manifest

ADMISSION_API = "admissionregistration.k8s.io/v1beta1"

_DNS = {"name": "kube-dns", "namespace": "kube-system"}
_DNS_PORTS = [{"name": f"dns-{protocol.lower()}", "port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]


def node_objects(nodes: Sequence[RealNode], *, dns: str) -> Iterator[Manifest]:
    """DNS, and a policy for every node.

    Args:
        nodes: the real nodes.
        dns: address of CoreDNS.
    """
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**_DNS, "labels": {"k8s-app": "kube-dns"}},
        "spec": {"clusterIP": DNS_SERVICE, "ports": _DNS_PORTS},
    }
    yield {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**_DNS, "labels": {"kubernetes.io/service-name": _DNS["name"]}},
        "addressType": "IPv4",
        "ports": _DNS_PORTS,
        "endpoints": [{"addresses": [dns], "conditions": {"ready": True}}],
    }
    for node in nodes:
        yield from capacity_policy(node)


def capacity_policy(node: RealNode) -> Iterator[Manifest]:
    """A policy that writes the group's resources over those of this machine whenever the kubelet reports them.

    Kueue, the scheduler and the kubelet's own admission read the Node object, so pods are placed as on the group's instance type. The
    kubelet itself knows what this machine has, and evicts pods when that runs short.
    """
    name = f"capacity-of-{node.name}"
    yield {
        "apiVersion": ADMISSION_API,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["nodes", "nodes/status"],
                    }
                ]
            },
            "matchConditions": [
                {"name": "node", "expression": f"object.metadata.name == {json.dumps(node.name)}"},
                {"name": "reported", "expression": "has(object.status.capacity) && has(object.status.allocatable)"},
            ],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _patch(node.resources)}}],
        },
    }
    yield {
        "apiVersion": ADMISSION_API,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name},
    }


def _patch(resources: Mapping[str, str]) -> str:
    """The CEL expression of a JSON patch that sets resources."""
    patches = (
        f'JSONPatch{{op: "add", path: "/status/{field}/{resource}", value: {json.dumps(amount)}}}'
        for field in ("capacity", "allocatable")
        for resource, amount in resources.items()
    )
    return f"[{', '.join(patches)}]"

"""A drain of a group's nodes, as EKS updates a managed node group: it evicts pods, repeats what is refused, and gives up in the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kubernetes.client import CoreV1Api, V1Eviction, V1ObjectMeta
from kubernetes.client.exceptions import ApiException

from infra.spec.manifest import Manifest
from infra.spec.node_labels import GROUP_LABEL
from tests.engines.kubernetes import Cluster

_TOO_MANY_REQUESTS = 429
_RETRY_SECONDS = 0.2


class PodEvictionFailureError(Exception):
    """EKS's error PodEvictionFailure: pods are left on the nodes, and the update does not use force."""


@dataclass(frozen=True)
class Drain:
    """A drain that is under way."""

    cluster: Cluster
    nodes: frozenset[str]

    def round(self) -> dict[str, str]:
        """Evict every pod that is left; returns by name why pods are refused, which is empty once the nodes are."""
        left = [pod for pod in self.cluster.items("v1", "Pod") if self._is_drained(pod)]
        return {pod["metadata"]["name"]: evict(self.cluster, pod) or "being deleted" for pod in left}

    def run(self, *, rounds: int) -> None:
        """Repeat the round until the nodes are empty.

        Raises:
            PodEvictionFailureError: pods are left after so many rounds.
        """
        for _ in range(rounds):
            if not (refused := self.round()):
                return
            time.sleep(_RETRY_SECONDS)
        raise PodEvictionFailureError(", ".join(f"{name}: {why}" for name, why in refused.items()))

    def _is_drained(self, pod: Manifest) -> bool:
        owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", ())}
        return pod["spec"].get("nodeName") in self.nodes and "DaemonSet" not in owners


@contextmanager
def draining(cluster: Cluster, *, group: str) -> Iterator[Drain]:
    """The drain of a group. When the context is left, its nodes take pods again, like those that an update puts in their place."""
    nodes = cluster.items("v1", "Node", labels=f"{GROUP_LABEL}={group}")
    try:
        for node in nodes:
            cluster.patch(node, {"spec": {"unschedulable": True}})
        yield Drain(cluster, frozenset(node["metadata"]["name"] for node in nodes))
    finally:
        for node in nodes:
            cluster.patch(node, {"spec": {"unschedulable": None}})


def evict(cluster: Cluster, pod: Manifest) -> str:
    """Request the eviction of a pod; returns why it is refused, or an empty text."""
    metadata = pod["metadata"]
    body = V1Eviction(metadata=V1ObjectMeta(name=metadata["name"], namespace=metadata["namespace"]))
    try:
        CoreV1Api(cluster.client).create_namespaced_pod_eviction(metadata["name"], metadata["namespace"], body)
    except ApiException as error:
        if error.status != _TOO_MANY_REQUESTS:
            raise
        return str(error.body)
    return ""

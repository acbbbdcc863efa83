"""The namespaces that a teardown empties, and what keeps those that are being deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from infra.kube.api import KubernetesApi
from infra.spec.manifest import MANAGED_BY, PART_OF

Within = Collection[str] | None
"""Namespaces that a teardown is limited to; None: the whole cluster, which goes with the stack."""

_CAUSES = frozenset(
    {
        "NamespaceContentRemaining",
        "NamespaceFinalizersRemaining",
        "NamespaceDeletionDiscoveryFailure",
        "NamespaceDeletionGroupVersionParsingFailure",
        "NamespaceDeletionContentFailure",
    }
)
"""Conditions of a namespace that say why it is still there (kubernetes, pkg/controller/namespace/deletion/status_condition_utils.go)."""


def is_within(namespace: str, within: Within) -> bool:
    """Whether a namespace is one of those."""
    return within is None or namespace in within


def own_namespaces(api: KubernetesApi) -> frozenset[str]:
    """The platform's and the teams' namespaces: all that the stack has of a cluster that others use too.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    return frozenset(one["metadata"]["name"] for one in api.items("v1", "Namespace", labels=f"{PART_OF}={MANAGED_BY}"))


def kept_namespaces(api: KubernetesApi) -> Iterator[str]:
    """A line for each namespace that is being deleted, with what Kubernetes waits for.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    for one in api.items("v1", "Namespace"):
        if one.get("status", {}).get("phase") != "Terminating":
            continue
        conditions = one["status"].get("conditions") or ()
        causes = [each["message"] for each in conditions if each["type"] in _CAUSES and each["status"] == "True"]
        yield f"namespace {one['metadata']['name']} is being deleted: {'; '.join(causes) or 'no reason given yet'}"

"""The caller's permissions, which the API server knows (SelfSubjectAccessReview)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from infra.spec.uis import Permission

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi


def missing(api: KubernetesApi, permissions: Sequence[Permission], *, namespace: str) -> str:
    """The first of some permissions in a namespace that the caller lacks, in words; empty if none."""
    return next((_words(one) for one in _requests(permissions, namespace) if not _is_allowed(api, one)), "")


def require(
    api: KubernetesApi, permissions: Sequence[Permission], *, namespace: str, role: str, title: str, remedy: str
) -> None:
    """Refuse a caller who lacks a permission.

    Args:
        api: the API server.
        permissions: what is needed.
        namespace: where.
        role: name of the Role in that namespace that grants it.
        title: what it is needed for.
        remedy: how to get the role.

    Raises:
        RefusedError: names the missing permission and the role.
    """
    lacking = missing(api, permissions, namespace=namespace)
    if lacking:
        raise RefusedError(
            f"{title} needs the permission to {lacking} in namespace {namespace}, which the role {role} of that namespace "
            "grants and you do not have",
            remedy=remedy,
        )


def _requests(permissions: Sequence[Permission], namespace: str) -> Iterator[dict[str, str]]:
    for one in permissions:
        resource, _, subresource = one.resource.partition("/")
        for verb in one.verbs:
            for name in one.names or ("",):
                yield {
                    "namespace": namespace,
                    "verb": verb,
                    "resource": resource,
                    **({"subresource": subresource} if subresource else {}),
                    **({"name": name} if name else {}),
                }


def _is_allowed(api: KubernetesApi, attributes: dict[str, str]) -> bool:
    review: Manifest = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "metadata": {},
        "spec": {"resourceAttributes": attributes},
    }
    return bool(api.create(review)["status"]["allowed"])


def _words(attributes: dict[str, str]) -> str:
    resource = "/".join(filter(None, (attributes["resource"], attributes.get("subresource"))))
    return " ".join(filter(None, (attributes["verb"], resource, attributes.get("name"))))

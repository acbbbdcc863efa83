"""Apply CRDs to an API server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from infra.kube.api import KubernetesApi
from infra.spec.manifest import Manifest


def apply_crds(api: KubernetesApi, crds: Iterable[Manifest]) -> None:
    """Apply CRDs and wait until the API server serves their kinds.

    Raises:
        ApiError: the API server refuses one, or does not serve it in time.
    """
    applied = [api.apply(crd) for crd in crds]
    for crd in applied:
        api.await_(crd, _is_established, what="established")


def _is_established(crd: Mapping[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or []  # null at first
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

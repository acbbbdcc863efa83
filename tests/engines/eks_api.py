"""A cluster that exists already, in moto's EKS: moto has neither add-ons nor access entries nor identities."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest
from moto.eks import urls as eks_urls

from tests.infra.lifecycle.existing.eks import Eks

_PATHS = (
    "",
    "/addons",
    "/addons/(?P<addonName>[^/]+)",
    "/node-groups",
    "/node-groups/(?P<nodegroupName>[^/]+)",
    "/pod-identity-associations",
    "/pod-identity-associations/(?P<associationId>[^/]+)",
    "/access-entries/(?P<principalArn>.+)",
)
"""What is asked about a cluster; where moto has a path, it is moto's."""

Answer = tuple[int, Mapping[str, str], str]


def add_existing_cluster(eks: Eks, patch: pytest.MonkeyPatch) -> None:
    """Let moto's servers that start from now on have the clusters of the double, besides their own."""
    for path in _PATHS:
        key = f"{{0}}/clusters/(?P<name>[^/]+){path}$"
        patch.setitem(eks_urls.url_paths, key, _answering(eks, eks_urls.url_paths.get(key)))


def _answering(eks: Eks, others: Callable[..., Any] | None) -> Callable[..., Any]:
    def answer(request: Any, url: str, headers: object) -> Any:  # noqa: ANN401 - moto has no types
        # Flask has decoded the ARN of a role, with its slashes.
        parts = unquote(urlsplit(request.url).path).split("/", 4)
        if others is not None and not (parts[2] in eks.clusters and request.method == "GET"):
            return others(request, url, headers)
        return _answer(eks.answer("/".join(quote(part, safe="") for part in parts)))

    return answer


def _answer(found: Mapping[str, Any] | None) -> Answer:
    if found is None:
        refusal = {"Content-Type": "application/json", "x-amzn-ErrorType": "ResourceNotFoundException"}
        return 404, refusal, json.dumps({"message": "there is none"})
    return 200, {"Content-Type": "application/json"}, json.dumps(found)

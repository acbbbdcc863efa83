"""A double of the EKS API, in process: clusters, add-ons, access entries and identities in the published shapes of its answers.

moto has clusters and node groups only, and leaves the access configuration of a cluster out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from moto.core.botocore_stubber import MockRawResponse

Json = dict[str, Any]

ENDPOINT = "http://eks.test"
"""The value of AWS_ENDPOINT_URL_EKS with which requests reach the double; moto answers those to AWS's own names."""


@dataclass
class Eks:
    """What the double knows.

    Attributes:
        clusters: `cluster` of DescribeCluster by name.
        addons: `addon` of DescribeAddon by name.
        entries: tags of each access entry, by principal.
        identities: `association` of DescribePodIdentityAssociation by ID.
        nodegroups: tags of each node group, by name.
        failing: paths that answer 503 this many times.
    """

    clusters: dict[str, Json] = field(default_factory=dict)
    addons: dict[str, Json] = field(default_factory=dict)
    entries: dict[str, dict[str, str]] = field(default_factory=dict)
    identities: dict[str, Json] = field(default_factory=dict)
    nodegroups: dict[str, dict[str, str]] = field(default_factory=dict)
    failing: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def serving(self, session: boto3.Session) -> Iterator[None]:
        """Answer the requests of a session to `ENDPOINT`, while the context is open."""
        session.events.register("before-send.eks", self._send)
        try:
            yield
        finally:
            session.events.unregister("before-send.eks", self._send)

    def _send(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        parts = urlsplit(request.url)
        if self.failing.get(parts.path, 0):
            self.failing[parts.path] -= 1
            return _response(request, 503, {"message": "try again"}, "ServerException")
        found = self.answer(parts.path)
        if found is None:
            return _response(request, 404, {"message": f"no {parts.path}"}, "ResourceNotFoundException")
        return _response(request, 200, found, "")

    def answer(self, path: str) -> Json | None:
        """What EKS says to a GET of a path, e.g. /clusters/shared/addons; None if there is no such thing."""
        return self._answer(*[unquote(part) for part in path.strip("/").split("/")][1:])

    def associate(self, account: str, role: str, *, namespace: str = "kube-system", **more: object) -> None:
        """Add a Pod Identity association, whose ID is the name of its service account."""
        named = {"namespace": namespace, "serviceAccount": account, "associationId": account}
        self.identities[account] = {**named, "roleArn": role, **more}

    def _answer(self, cluster: str, kind: str = "", name: str = "") -> Json | None:
        if cluster not in self.clusters:
            return None
        lists: dict[str, Callable[[], Json]] = {
            "": lambda: {"cluster": self.clusters[cluster]},
            "addons": lambda: {"addons": list(self.addons)},
            "node-groups": lambda: {"nodegroups": list(self.nodegroups)},
            "pod-identity-associations": lambda: {"associations": [*self._associations()]},
        }
        return self._member(kind, name) if name else lists[kind]()

    def _member(self, kind: str, name: str) -> Json | None:
        members: dict[str, Mapping[str, Json]] = {
            "addons": {one: {"addon": addon} for one, addon in self.addons.items()},
            "node-groups": {one: {"nodegroup": {"tags": tags}} for one, tags in self.nodegroups.items()},
            "access-entries": {one: {"accessEntry": {"tags": tags}} for one, tags in self.entries.items()},
            "pod-identity-associations": {one: {"association": found} for one, found in self.identities.items()},
        }
        return members[kind].get(name)

    def _associations(self) -> Iterator[Json]:
        """The list has neither roles nor tags."""
        for one in self.identities.values():
            yield {key: one[key] for key in ("associationId", "namespace", "serviceAccount")}


def _response(request: AWSPreparedRequest, status: int, body: Json, error: str) -> AWSResponse:
    headers = {"Content-Type": "application/json", **({"x-amzn-ErrorType": error} if error else {})}
    return AWSResponse(request.url, status, headers, MockRawResponse(json.dumps(body).encode()))

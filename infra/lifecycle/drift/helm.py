"""The installed Helm releases, as Helm keeps them in its Secrets, beside what the stack's state says of them."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from infra.kube.api import KubernetesApi
from infra.lifecycle.drift.difference import Difference, has_secret
from infra.lifecycle.stack.state import releases_in
from infra.spec.manifest import Manifest

_TYPE = "helm.sh/release.v1"
_DEPLOYED = "owner=helm,status=deployed"


@dataclass(frozen=True, kw_only=True)
class Release:
    """The deployed revision of a release.

    Attributes:
        namespace: its namespace.
        name: its name.
        version: version of its chart, without a leading v.
        values: the values that it was installed with.
        text: its objects as YAML, without hooks, which Helm runs once, and the CRDs of `crds/`.
    """

    namespace: str
    name: str
    version: str
    values: Mapping[str, Any]
    text: str

    def objects(self) -> Iterator[Manifest]:
        """Its objects; those without a namespace have that of the release."""
        for document in yaml.load_all(self.text, Loader=yaml.CSafeLoader):
            if document:
                yield {**document, "metadata": {"namespace": self.namespace, **document["metadata"]}}


def installed_releases(api: KubernetesApi) -> Iterator[Release]:
    """Every installed release.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    for secret in api.items("v1", "Secret", labels=_DEPLOYED):
        if secret.get("type") == _TYPE:
            # Helm compresses and encodes the release, and Kubernetes encodes a Secret's data (helm, pkg/storage/driver/util.go).
            found = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"]))))
            version = str(found.get("chart", {}).get("metadata", {}).get("version", ""))
            yield Release(
                namespace=found["namespace"],
                name=found["name"],
                version=version.removeprefix("v"),
                values=found.get("config") or {},
                text=found["manifest"],
            )


def changed_releases(releases: Iterable[Release], state: Mapping[str, Any]) -> Iterator[Difference]:
    """Releases that somebody has upgraded or rolled back, by their chart's version and the values that the state has unencrypted.

    A refresh does not find them: the provider reads neither (pulumi-kubernetes, helm_release.go, `Read`).
    """
    by_key = {(one.namespace, one.name): one for one in releases}
    for resource in releases_in(state):
        live = by_key.get((resource["inputs"]["namespace"], resource["inputs"]["name"]))
        paths = () if live is None else tuple(_changed_inputs(resource["inputs"], live))
        if live is not None and paths:
            what = f"Release {live.namespace}/{live.name}"
            yield Difference(where="cluster", resource=what, kind="changed", paths=paths)


def _changed_inputs(inputs: Mapping[str, Any], live: Release) -> Iterator[str]:
    if "version" in inputs and str(inputs["version"]).removeprefix("v") != live.version:
        yield "version"
    values = inputs.get("values") or {}
    if not has_secret(values) and values != live.values:
        yield "values"

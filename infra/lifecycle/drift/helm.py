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

RELEASE = "Release "
"""Beginning of the names of releases in differences."""

_TYPE = "helm.sh/release.v1"
_OWNER = "owner=helm"


@dataclass(frozen=True, kw_only=True)
class Release:
    """A revision of a release.

    Attributes:
        namespace: its namespace.
        name: its name.
        revision: its number.
        version: version of its chart, without a leading v.
        values: the values that it was installed with.
        text: its objects as YAML, without hooks, which Helm runs once, and the CRDs of `crds/`.
    """

    namespace: str
    name: str
    revision: int
    version: str
    values: Mapping[str, Any]
    text: str

    def objects(self) -> Iterator[Manifest]:
        """Its objects; those without a namespace have that of the release."""
        for document in yaml.load_all(self.text, Loader=yaml.CSafeLoader):
            if document:
                yield {**document, "metadata": {"namespace": self.namespace, **document["metadata"]}}


def installed_releases(api: KubernetesApi) -> Iterator[Release]:
    """The deployed revision of every installed release.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    return _revisions(api, "status=deployed")


def way_back(api: KubernetesApi, state: Mapping[str, Any], difference: Difference) -> str:
    """The command that takes a changed release back: to the last revision with the chart and the values of the state.

    Args:
        api: the API server.
        state: the exported state.
        difference: what `changed_releases` found.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    namespace, name = difference.resource.removeprefix(RELEASE).split("/")
    inputs = next(one["inputs"] for one in releases_in(state) if one["inputs"]["name"] == name)
    kept = (one for one in _revisions(api, f"name={name}") if one.namespace == namespace)
    fitting = [one.revision for one in kept if not list(_changed_inputs(inputs, one))]
    if fitting:
        return f"helm rollback {name} {max(fitting)} --namespace {namespace}"
    return f"helm history {name} --namespace {namespace}  # no revision of the stack is left"


def _revisions(api: KubernetesApi, labels: str) -> Iterator[Release]:
    for secret in api.items("v1", "Secret", labels=f"{_OWNER},{labels}"):
        if secret.get("type") == _TYPE:
            # Helm compresses and encodes the release, and Kubernetes encodes a Secret's data (helm, pkg/storage/driver/util.go).
            found = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"]))))
            version = str(found.get("chart", {}).get("metadata", {}).get("version", ""))
            yield Release(
                namespace=found["namespace"],
                name=found["name"],
                revision=int(found["version"]),
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
            what = f"{RELEASE}{live.namespace}/{live.name}"
            yield Difference(where="cluster", resource=what, kind="changed", paths=paths)


def _changed_inputs(inputs: Mapping[str, Any], live: Release) -> Iterator[str]:
    if "version" in inputs and str(inputs["version"]).removeprefix("v") != live.version:
        yield "version"
    values = inputs.get("values") or {}
    if not has_secret(values) and values != live.values:
        yield "values"

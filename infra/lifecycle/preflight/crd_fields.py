"""Fields of live objects that a release's CRDs lack. The API server drops such a field from what it reads, without an error."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from infra.kube.api import KubernetesApi
from infra.spec.manifest import Manifest

_OPERATORS_OWN = frozenset({"apiVersion", "kind", "metadata", "status"})
"""Fields of an object that no schema of ours drops, or that its operator writes anew."""

_EMBEDDED = frozenset({"apiVersion", "kind", "metadata"})
_KEEPS_ALL: Mapping[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}


class LostField(NamedTuple):
    """A field that objects of a kind would lose.

    Attributes:
        crd: name of the CRD.
        path: the field, e.g. `spec.workerGroupSpecs[].suspend`.
        objects: namespace and name of the objects that set it.
    """

    crd: str
    path: str
    objects: tuple[str, ...]


def lost_fields(api: KubernetesApi, live: Iterable[Manifest], pinned: Iterable[Manifest]) -> Iterator[LostField]:
    """Every field that an object in the cluster sets and the new CRD of its kind lacks.

    Args:
        api: the API server.
        live: its CRDs.
        pinned: the CRDs to replace them.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    before = {one["metadata"]["name"]: one for one in live}
    for crd in pinned:
        name, version = crd["metadata"]["name"], _stored_version(crd)
        if name not in before or version["name"] not in _served(before[name]):
            continue  # no object can be read in the new version yet
        users: dict[str, list[str]] = defaultdict(list)
        for one in api.items(f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]):
            content = {key: value for key, value in one.items() if key not in _OPERATORS_OWN}
            for path in dict.fromkeys(dropped(content, version["schema"]["openAPIV3Schema"])):
                users[path].append(f"{one['metadata'].get('namespace', '')}/{one['metadata']['name']}".lstrip("/"))
        yield from (LostField(name, path, tuple(objects)) for path, objects in users.items())


def dropped(value: object, schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Paths of the fields that the API server drops by a structural schema.

    See Kubernetes, "Field pruning", and apiextensions-apiserver, pkg/apiserver/schema/pruning/algorithm.go.
    """
    if isinstance(value, list):
        for one in value:
            yield from dropped(one, schema.get("items", _KEEPS_ALL), f"{path}[]")
    elif isinstance(value, dict):
        for name, inner in value.items():
            field = f"{path}.{name}".lstrip(".")
            found = _schema_of(name, schema)
            if found is None:
                yield field
            else:
                yield from dropped(inner, found, field)


def _schema_of(name: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema of a field; None if it is dropped."""
    specified: Mapping[str, Any] | None = schema.get("properties", {}).get(name)
    others = schema.get("additionalProperties")
    if specified is not None:
        return specified
    if isinstance(others, dict):
        return others
    is_embedded = schema.get("x-kubernetes-embedded-resource") and name in _EMBEDDED
    is_kept = others or is_embedded or schema.get("x-kubernetes-preserve-unknown-fields")
    return _KEEPS_ALL if is_kept else None


def _stored_version(crd: Manifest) -> Mapping[str, Any]:
    (found,) = [version for version in crd["spec"]["versions"] if version["storage"]]
    version: Mapping[str, Any] = found
    return version


def _served(crd: Manifest) -> frozenset[str]:
    return frozenset(version["name"] for version in crd["spec"]["versions"] if version["served"])

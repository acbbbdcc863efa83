"""Compares objects of the cluster with those that the stack made, by a server-side dry run.

The API server itself says what an object would be if its fields were set again: it knows defaults, quantities and the merging of lists.
Fields that the stack does not set belong to others, such as a held queue's stop policy, and are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from infra.kube.api import KubernetesApi
from infra.kube.definitions import apply_crds
from infra.kube.errors import ApiError
from infra.lifecycle.drift.difference import Difference, Kind, differing_paths, has_secret
from infra.lifecycle.stack.state import resources_in
from infra.lifecycle.teardown.deletion import is_deleted, keepers
from infra.spec.manifest import MANAGED_BY, PART_OF, Manifest

_MANAGER = "drift"
"""Field manager of the dry runs; it never owns anything."""

_ATTEMPTS = 3

_LONGEST_NAME = 63
"""Of every kind (RFC 1123, label)."""

_FROM_PULUMI = ("apiVersion", "kind", "metadata")


def objects_of_state(state: Mapping[str, Any]) -> Mapping[str, Manifest]:
    """The Kubernetes objects in an exported state by URN, without the fields with secrets, which it has encrypted.

    Args:
        state: what `pulumi stack export` prints.
    """
    found: dict[str, Manifest] = {}
    for one in resources_in(state):
        inputs = one.get("inputs") or {}
        is_object = str(one["type"]).startswith("kubernetes:") and all(key in inputs for key in _FROM_PULUMI)
        if is_object and not one.get("delete"):
            kept = {key: value for key, value in inputs.items() if not key.startswith("__") and not has_secret(value)}
            found[str(one["urn"])] = kept
    return found


def refused_objects(state: Mapping[str, Any], differences: Iterable[Difference]) -> tuple[str, ...]:
    """URNs of the objects that the API server does not take as the stack made them: a preview or an update would fail at the first.

    Nor does it keep what is written to one that is being deleted.
    """
    refused = {one.resource for one in differences if one.kind in {"being deleted", "immutable", "unknown"}}
    return tuple(urn for urn, manifest in objects_of_state(state).items() if _name(manifest) in refused)


def compare(api: KubernetesApi, manifests: Iterable[Manifest]) -> Iterator[Difference]:
    """How the cluster's objects differ from these, in their order.

    Raises:
        ConnectionLostError: the API server does not answer.
    """
    for manifest in manifests:
        found = _compared(api, _without_annotations(manifest))
        if found is not None:
            yield found


def being_deleted(api: KubernetesApi, state: Mapping[str, Any]) -> Iterator[Difference]:
    """The stack's objects that somebody is deleting, and that something keeps: what an update changes in them goes with them.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    ours = {_name(one): one for one in objects_of_state(state).values()}
    for version, kind in sorted({(one["apiVersion"], one["kind"]) for one in ours.values()}):
        for live in api.items_if_served(version, kind, labels=f"{PART_OF}={MANAGED_BY}"):
            named = _name({**live, "kind": kind})
            if is_deleted(live) and named in ours:
                yield Difference(where="cluster", resource=named, kind="being deleted", paths=keepers(live))


def take_back(api: KubernetesApi, differences: Iterable[Difference]) -> Iterator[str]:
    """Apply the objects as they should be; CRDs are served again before the next one is applied.

    Helm and the program own them as before: an upgrade of a chart merges its changes into whatever there is.

    Yields:
        why an object could not be applied.

    Raises:
        ConnectionLostError: the API server does not answer.
    """
    for one in differences:
        assert one.wanted is not None, "it is of the cluster"
        try:
            if one.wanted["kind"] == "CustomResourceDefinition":
                apply_crds(api, [one.wanted])
            else:
                api.apply(one.wanted)
        except ApiError as error:
            yield f"{one.resource}: {error.args[0]}"


def rebind_volumes(api: KubernetesApi, state: Mapping[str, Any]) -> None:
    """Let volumes be taken again by the claims that the stack reserves them for.

    Once somebody deletes a claim, or its namespace, Kubernetes keeps its volume for the deleted one (phase `Released`), and a new claim
    of that name waits for ever.

    Args:
        api: the API server.
        state: the exported state.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    for manifest in objects_of_state(state).values():
        if manifest["kind"] == "PersistentVolume" and "claimRef" in manifest["spec"]:
            live = api.read(manifest)
            if live is not None and live.get("status", {}).get("phase") == "Released":
                api.patch(manifest, {"spec": {"claimRef": {"uid": None, "resourceVersion": None}}})


def _scoped(api: KubernetesApi, manifest: Manifest) -> Manifest:
    """Without the namespace that charts' objects of the whole cluster do not have.

    Raises:
        ApiError: the API server does not serve the kind.
    """
    if "namespace" not in manifest["metadata"] or api.is_namespaced(manifest["apiVersion"], manifest["kind"]):
        return manifest
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "namespace"}
    return {**manifest, "metadata": metadata}


def _compared(api: KubernetesApi, manifest: Manifest) -> Difference | None:
    try:
        manifest = _scoped(api, manifest)
    except ApiError as error:
        kind: Kind = "deleted" if error.code == 404 else "unknown"
        return Difference(where="cluster", resource=_name(manifest), kind=kind, wanted=manifest)
    differs = partial(Difference, where="cluster", resource=_name(manifest), wanted=manifest)
    try:
        live, wanted = _read_and_wanted(api, manifest)
        if live is None:
            return differs(kind="deleted")
        if is_deleted(live):
            return differs(kind="being deleted", paths=keepers(live))
    except ApiError as error:
        if error.fields and _may_be_created(api, manifest):
            return differs(kind="immutable", paths=error.fields)
        return differs(kind="unknown", paths=(str(error.args[0]),))
    paths = differing_paths(live, wanted)
    return differs(kind="changed", paths=paths) if paths else None


def _read_and_wanted(api: KubernetesApi, manifest: Manifest) -> tuple[Manifest | None, Manifest]:
    """The object, and what it would be: of the same version, because a controller may write to it between the two requests."""
    live, wanted = api.read(manifest), {}
    for _ in range(_ATTEMPTS):
        if live is None:
            break
        wanted = api.apply(manifest, manager=_MANAGER, is_dry_run=True)
        if wanted["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]:
            break
        live = api.read(manifest)
    return live, wanted


def _may_be_created(api: KubernetesApi, manifest: Manifest) -> bool:
    """Whether the API server would take a new object like this one: what it refuses is only the change."""
    name = f"{_MANAGER}-{manifest['metadata']['name']}"[:_LONGEST_NAME].rstrip("-.")
    try:
        api.create({**manifest, "metadata": {**manifest["metadata"], "name": name}}, is_dry_run=True)
    except ApiError:
        return False
    return True


def _without_annotations(manifest: Manifest) -> Manifest:
    """Without annotations for Pulumi's provider, which it does not send to the cluster."""
    metadata = manifest["metadata"]
    kept = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if not key.startswith("pulumi.com/")
    }
    cleaned = {key: value for key, value in metadata.items() if key != "annotations"}
    return {**manifest, "metadata": {**cleaned, **({"annotations": kept} if kept else {})}}


def _name(manifest: Manifest) -> str:
    namespace = manifest["metadata"].get("namespace")
    return f"{manifest['kind']} {f'{namespace}/' if namespace else ''}{manifest['metadata']['name']}"

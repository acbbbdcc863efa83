"""The API server as one wants it here: server-side apply that lets nothing pass, and a deletion that waits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from kubernetes.client import ApiClient

from infra.spec.errors import PlatformError

FIELD_MANAGER = "ray-train-platform"

_POLL_SECONDS = 0.05

Object = dict[str, Any]


_GIVEN = {("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")}
"""Kind and name of what controllers put into every namespace."""


class ApiRefusalError(PlatformError):
    """The API server did not do what it was asked.

    Attributes:
        code: HTTP status.
    """

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


class Api:
    """Objects by their manifests, whatever their kind.

    Attributes:
        client: the connection.
        warnings: what the API server warned of so far at objects that were written, each with its request.
    """

    def __init__(self, client: ApiClient) -> None:
        self.client = client
        self.warnings: list[str] = []
        self._resources = cache(self._discover)

    def apply(self, manifest: Mapping[str, Any], *, manager: str = FIELD_MANAGER, is_dry_run: bool = False) -> Object:
        """Server-side apply; an unknown or repeated field is an error.

        Args:
            manifest: the object.
            manager: who owns the fields from now on; takes them from whoever had them.
            is_dry_run: admit and validate it, and keep nothing.

        Returns:
            the object as the server has it now.

        Raises:
            ApiRefusalError: it was refused.
        """
        query = [("fieldManager", manager), ("fieldValidation", "Strict"), ("force", "true")]
        return self._ask("PATCH", self.path(manifest), query=_with_dry_run(query, is_dry_run=is_dry_run), body=manifest)

    def create(self, manifest: Mapping[str, Any], *, is_dry_run: bool = False) -> Object:
        """Create an object that is not there yet; raises like `apply`."""
        query = [("fieldManager", FIELD_MANAGER), ("fieldValidation", "Strict")]
        path = self.path(manifest).rpartition("/")[0]
        return self._ask("POST", path, query=_with_dry_run(query, is_dry_run=is_dry_run), body=manifest)

    def update_status(self, manifest: Mapping[str, Any], status: Mapping[str, Any]) -> Object:
        """Say what state an object is in, in place of the controller that would; raises like `apply`."""
        query = [("fieldManager", "status"), ("force", "true")]
        identity = {key: manifest[key] for key in ("apiVersion", "kind")}
        metadata = {key: value for key, value in manifest["metadata"].items() if key in {"name", "namespace"}}
        body = {**identity, "metadata": metadata, "status": status}
        return self._ask("PATCH", f"{self.path(manifest)}/status", query=query, body=body)

    def read(self, manifest: Mapping[str, Any]) -> Object | None:
        """The object as the server has it; None where there is none."""
        try:
            return self._ask("GET", self.path(manifest))
        except ApiRefusalError as refusal:
            if refusal.code == 404:
                return None
            raise

    def delete(self, manifest: Mapping[str, Any]) -> None:
        """Ask for the object's end and that of everything it owns; what is not there is deleted already."""
        try:
            self._ask("DELETE", self.path(manifest), body={"propagationPolicy": "Background"})
        except ApiRefusalError as refusal:
            if refusal.code != 404:
                raise

    def delete_all(self, manifests: Sequence[Mapping[str, Any]], *, seconds: float = 60) -> None:
        """Delete in the opposite order, and wait until none is left.

        Raises:
            ApiRefusalError: one is still there after `seconds`; names it.
        """
        for manifest in reversed(manifests):
            self.delete(manifest)
        deadline = time.monotonic() + seconds
        for manifest in manifests:
            while (left := self.read(manifest)) is not None:
                if time.monotonic() > deadline:
                    state = json.dumps({"metadata": left["metadata"], "status": left.get("status")})
                    raise ApiRefusalError(f"{_name(manifest)} is still there after {seconds:.0f} s: {state}", code=409)
                time.sleep(_POLL_SECONDS)

    def items(self, api_version: str, kind: str, *, namespace: str | None = None, labels: str = "") -> list[Object]:
        """Every object of a kind, of one namespace or of all; `labels` is a label selector."""
        manifest: Object = {"apiVersion": api_version, "kind": kind, "metadata": {"name": ""}}
        if namespace is not None:
            manifest["metadata"]["namespace"] = namespace
        path = self.path(manifest, is_of_all_namespaces=namespace is None).rstrip("/")
        found: list[Object] = self._ask("GET", path, query=[("labelSelector", labels)])["items"]
        return found

    def await_(
        self, manifest: Mapping[str, Any], is_so: Callable[[Object], bool], *, what: str, seconds: float = 30
    ) -> Object:
        """Wait until something holds of an object.

        Args:
            manifest: the object.
            is_so: whether it holds, of the object as the server has it.
            what: what is waited for, for the message.
            seconds: how long.

        Raises:
            ApiRefusalError: it does not hold in time; with the object's state.
        """
        deadline = time.monotonic() + seconds
        while (found := self.read(manifest)) is None or not is_so(found):
            if time.monotonic() > deadline:
                state = "absent" if found is None else json.dumps(found.get("status"))
                raise ApiRefusalError(f"{_name(manifest)} is not {what} after {seconds:.0f} s: {state}", code=408)
            time.sleep(_POLL_SECONDS)
        return found

    def inventory(self) -> set[str]:
        """Paths of all objects there are, of every kind that can be listed.

        Without what the control plane makes and removes by itself: events, leases, and what it gives every namespace.
        """
        bases = ["/api/v1"]
        for group in self._ask("GET", "/apis")["groups"]:
            bases += [f"/apis/{group['preferredVersion']['groupVersion']}"]
        return {path for base in bases for path in self._objects(base)}

    def _objects(self, base: str) -> Iterator[str]:
        for resource in self._ask("GET", base)["resources"]:
            plural, kind = resource["name"], resource["kind"]
            if "list" in resource["verbs"] and kind not in {"Event", "Lease"}:
                for item in self._ask("GET", f"{base}/{plural}")["items"]:
                    metadata = item["metadata"]
                    if (kind, metadata["name"]) not in _GIVEN:
                        yield f"{base}/{plural}/{metadata.get('namespace', '')}/{metadata['name']}"

    def path(self, manifest: Mapping[str, Any], *, is_of_all_namespaces: bool = False) -> str:
        """Where the API server keeps an object."""
        version, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
        if not self.knows(manifest):
            raise ApiRefusalError(f"the API server knows no {kind} of {version}", code=404)
        base = _base(version)
        plural, is_namespaced = self._resources(base)[kind]
        if is_namespaced and not is_of_all_namespaces:
            base = f"{base}/namespaces/{metadata.get('namespace', 'default')}"
        return f"{base}/{plural}/{metadata['name']}"

    def knows(self, manifest: Mapping[str, Any]) -> bool:
        """Whether the API server serves the object's kind."""
        base, kind = _base(manifest["apiVersion"]), manifest["kind"]
        if kind not in self._resources(base):
            self._resources.cache_clear()  # a definition may have come since
        return kind in self._resources(base)

    def _discover(self, base: str) -> dict[str, tuple[str, bool]]:
        """Plural and whether it is namespaced, of every kind of a version of an API group."""
        try:
            resources = self._ask("GET", base)["resources"]
        except ApiRefusalError as refusal:
            if refusal.code == 404:
                return {}
            raise
        return {one["kind"]: (one["name"], one["namespaced"]) for one in resources if "/" not in one["name"]}

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Iterable[tuple[str, str]] = (),
        body: Mapping[str, Any] | None = None,
    ) -> Object:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if method == "PATCH":
            headers["Content-Type"] = "application/apply-patch+yaml"
        request = self.client.param_serialize(
            method,
            path,
            query_params=list(query),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        response = self.client.call_api(*request)
        text = response.read()
        if method in {"PATCH", "POST"}:
            self.warnings += [f"{method} {path}: {text}" for text in response.getheaders().getlist("Warning")]
        if response.status >= 300:
            raise ApiRefusalError(f"{method} {path}: {_message(text)}", code=response.status)
        answer: Object = json.loads(text)
        return answer


def _base(version: str) -> str:
    """Where the API server keeps a version of an API group."""
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def _with_dry_run(query: list[tuple[str, str]], *, is_dry_run: bool) -> list[tuple[str, str]]:
    return [*query, ("dryRun", "All")] if is_dry_run else query


def _message(text: bytes) -> str:
    """What a refusal says: the message of a Status, or plain text where no part of the server knows the path."""
    try:
        return str(json.loads(text)["message"])
    except json.JSONDecodeError:
        return text.decode().strip()


def _name(manifest: Mapping[str, Any]) -> str:
    metadata = manifest["metadata"]
    return f"{manifest['kind']} {metadata.get('namespace', '')}/{metadata['name']}"

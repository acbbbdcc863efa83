"""The API server: reads and writes objects as plain data, through the official dynamic client.

The dynamic client maps kinds to API paths by discovery, so no list of paths is kept here. `lightkube` imports 0.15 s faster,
but its `delete` has no preconditions, its `log` has neither `sinceTime` nor a read timeout, it hides the server's warnings,
and it rejects exec credentials of `client.authentication.k8s.io/v1`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import DynamicApiError, ResourceNotFoundError
from kubernetes.dynamic.resource import Resource
from urllib3.exceptions import HTTPError

from infra.kube.errors import ApiError, ConnectionLostError, unknown_kind
from infra.spec.errors import reason_of
from infra.spec.manifest import MANAGED_BY, Manifest

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0
_SILENT_LOG_SECONDS = 60.0
"""Read timeout of a log: without it, a stream over a dead network would never end."""

_POLL_SECONDS = 0.05

_QUOTA_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds between tries of a write that the API server rejects because a ResourceQuota of the namespace has just changed.

The server charges the quota before it admits an object, and gives up after three conflicts with others who charge or
recount it, as when several jobs of a team start or end at once. Nothing was written then.
"""

_NO_FILE = Path(os.devnull, "discovery.json")
"""Not a writable path, so the dynamic client caches discovery in memory only."""


class KubernetesApi:
    """One API server.

    A manifest's apiVersion, kind, name and namespace identify an object. Every method raises ConnectionLostError if
    the server does not answer or the connection breaks, and ApiError if the server rejects the request.

    Attributes:
        client: the connection.
        server: URL of the API server.
        warnings: the API server's warnings about objects it was sent, each with its request.
    """

    def __init__(self, client: ApiClient, *, discovery_cache: Path | None = None) -> None:
        """Open no connection yet.

        Args:
            client: the connection.
            discovery_cache: file that caches discovery between processes; None caches it in memory.
        """
        self.client = client
        self.server: str = client.configuration.host
        self.warnings: list[str] = []
        self._discovery_cache = discovery_cache or _NO_FILE
        self._discovery = threading.RLock()  # the dynamic client's own tables are not thread-safe
        self._found: dict[tuple[str, str], Resource] = {}
        self._connected: DynamicClient | None = None

    def read(self, manifest: Mapping[str, Any]) -> Manifest | None:
        """The object as the server has it; None if it does not exist."""
        try:
            return self._call("get", manifest)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def items(self, api_version: str, kind: str, *, namespace: str | None = None, labels: str = "") -> list[Manifest]:
        """The objects of a kind, in one namespace or in all; `labels` is a label selector."""
        with self._translated(f"list {kind}" + (f" in namespace {namespace}" if namespace else "")):
            resource = self._resource(api_version, kind)
            selector = {"label_selector": labels} if labels else {}
            answer = resource.get(namespace=namespace, serialize=False, **selector)
            found: list[Manifest] = json.loads(answer.data)["items"]
        # The items of a list of built-in kinds do not name their kind.
        return [{"apiVersion": api_version, "kind": kind, **item} for item in found]

    def items_if_served(self, api_version: str, kind: str, *, labels: str = "") -> list[Manifest]:
        """The objects of a kind in all namespaces; none if its CRD is not installed, which cached discovery may not know."""
        try:
            return self.items(api_version, kind, labels=labels)
        except ApiError as error:
            if error.code == 404:
                return []
            raise

    def watched(self, api_version: str, kind: str, *, seconds: int = 300) -> Iterator[dict[str, Manifest]]:
        """The objects of a kind in all namespaces by uid: as they are now, and again after each change, for `seconds` at most."""
        with self._translated(f"watch {kind}"):
            resource = self._resource(api_version, kind)
            listed = json.loads(resource.get(serialize=False).data)
            found: dict[str, Manifest] = {one["metadata"]["uid"]: one for one in listed["items"]}
            yield dict(found)
            answer = resource.get(
                serialize=False,
                watch=True,
                resource_version=listed["metadata"]["resourceVersion"],
                timeout_seconds=seconds,
                _request_timeout=(_CONNECT_SECONDS, seconds + _READ_SECONDS),
            )
            with closing(answer):
                for event in map(json.loads, _split(answer.stream())):
                    if event["type"] == "ERROR":  # e.g. the resource version is too old
                        return
                    uid = event["object"]["metadata"]["uid"]
                    if event["type"] == "DELETED":
                        found.pop(uid, None)
                    else:
                        found[uid] = event["object"]
                    yield dict(found)

    def apply(
        self,
        manifest: Mapping[str, Any],
        *,
        manager: str = MANAGED_BY,
        force: bool = True,
        is_dry_run: bool = False,
        subresource: str | None = None,
    ) -> Manifest:
        """Server-side apply, with strict field validation.

        Repeating a request whose answer was lost changes nothing.

        Args:
            manifest: the object.
            manager: the field manager that owns the fields from now on.
            force: take over fields that another manager has set to another value, otherwise a conflict (409).
            is_dry_run: admit and validate the object, and persist nothing.
            subresource: apply to this subresource, e.g. `status`.

        Returns:
            the object as the server has it now.
        """
        return self._call(
            "server_side_apply",
            manifest,
            subresource=subresource,
            body=manifest,
            force_conflicts=force,
            **_writing(manager, is_dry_run=is_dry_run),
        )

    def create(self, manifest: Mapping[str, Any], *, is_dry_run: bool = False) -> Manifest:
        """Create an object, with strict field validation; returns it as the server has it."""
        return self._call("create", manifest, body=manifest, **_writing(MANAGED_BY, is_dry_run=is_dry_run))

    def patch(self, manifest: Mapping[str, Any], change: Manifest) -> Manifest:
        """Change an object by a JSON merge patch; returns it as the server has it now."""
        return self._call("patch", manifest, body=change, content_type="application/merge-patch+json")

    def update_status(self, manifest: Mapping[str, Any], status: Mapping[str, Any]) -> Manifest:
        """Write an object's status in place of its controller."""
        metadata = {key: value for key, value in manifest["metadata"].items() if key in {"name", "namespace"}}
        body = {**{key: manifest[key] for key in ("apiVersion", "kind")}, "metadata": metadata, "status": status}
        return self.apply(body, manager="status", subresource="status")

    def delete(
        self, manifest: Mapping[str, Any], *, propagation: Literal["Background", "Foreground"] = "Background"
    ) -> None:
        """Request deletion of an object and its dependents.

        An absent object is not an error. If the manifest has a uid, another object of the same name is left alone.

        Args:
            manifest: the object.
            propagation: `Foreground` keeps the object until its dependents are deleted.
        """
        uid = manifest["metadata"].get("uid")
        options = {"propagationPolicy": propagation, **({"preconditions": {"uid": uid}} if uid else {})}
        try:
            self._call("delete", manifest, body=options)
        except ApiError as error:
            if error.code != 404 and not (error.code == 409 and uid):
                raise

    def read_raw(self, path: str) -> Manifest:
        """The object at a path, like `kubectl get --raw`; for resources that discovery does not list."""
        found: Manifest = json.loads(self.read_text(path))
        return found

    def read_text(self, path: str) -> str:
        """What the API server answers at a path, e.g. `/metrics`."""
        with self._translated(f"get {path}"):
            answer: bytes = self._dynamic().request("get", path, serialize=False).data
        return answer.decode(errors="replace")

    def log(
        self,
        pod: str,
        *,
        namespace: str,
        container: str | None = None,
        follow: bool = False,
        timestamps: bool = False,
        since: str | None = None,
        tail: int | None = None,
    ) -> Iterator[str]:
        """The lines of a container's log; with `follow`, streamed until the container or the connection ends.

        Args:
            pod: name of the pod.
            namespace: of the pod.
            container: name of the container; None if the pod has only one.
            follow: wait for further lines.
            timestamps: prefix each line with its time, RFC 3339.
            since: time of the first line, RFC 3339; None starts at the beginning.
            tail: number of newest lines to begin with; None takes all.
        """
        chosen = {"container": container, "sinceTime": since, "tailLines": tail}
        query = [(key, value) for key, value in chosen.items() if value is not None]
        query += [(key, "true") for key, is_set in {"follow": follow, "timestamps": timestamps}.items() if is_set]
        with self._translated(f"read the log of pod {namespace}/{pod}"):
            answer = self._resource("v1", "Pod").log.get(
                name=pod,
                namespace=namespace,
                query_params=query,
                serialize=False,
                _request_timeout=(_CONNECT_SECONDS, _SILENT_LOG_SECONDS),
            )
            with closing(answer):
                yield from _split(answer.stream())

    def is_namespaced(self, api_version: str, kind: str) -> bool:
        """Whether the objects of a kind are in namespaces."""
        with self._translated(f"discover {kind}"):
            return bool(self._resource(api_version, kind).namespaced)

    def serves(self, api_version: str, kind: str) -> bool:
        """Whether the API server serves a kind."""
        try:
            with self._translated(f"discover {kind}"):
                return self._resource(api_version, kind) is not None
        except ApiError as error:
            if error.code == 404:
                return False
            raise

    def await_(
        self, manifest: Mapping[str, Any], holds: Callable[[Manifest], bool], *, what: str, seconds: float = 30
    ) -> Manifest:
        """Wait until a condition holds for an object.

        Args:
            manifest: the object.
            holds: the condition; takes the object as the server has it.
            what: the condition in words, for the message.
            seconds: how long to wait.

        Raises:
            ApiError: it does not hold in time; carries the object's status.
        """
        deadline = time.monotonic() + seconds
        while (found := self.read(manifest)) is None or not holds(found):
            if time.monotonic() > deadline:
                state = "absent" if found is None else json.dumps(found.get("status"))
                raise ApiError(f"{_name(manifest)} is not {what} after {seconds:.0f} s: {state}", code=408)
            time.sleep(_POLL_SECONDS)
        return found

    def _call(self, verb: str, manifest: Mapping[str, Any], **options: Any) -> Manifest:  # noqa: ANN401 - see _call_once
        for pause in _QUOTA_PAUSES:
            try:
                return self._call_once(verb, manifest, **options)
            except ApiError as error:
                if not error.is_quota_conflict:
                    raise
            time.sleep(pause)
        return self._call_once(verb, manifest, **options)

    def _call_once(
        self,
        verb: str,
        manifest: Mapping[str, Any],
        *,
        subresource: str | None = None,
        **options: Any,  # noqa: ANN401 - the dynamic client's own
    ) -> Manifest:
        request = f"{'apply' if verb == 'server_side_apply' else verb} {_name(manifest)}"
        metadata = manifest["metadata"]
        with self._translated(request):
            resource = self._resource(manifest["apiVersion"], manifest["kind"])
            namespace = metadata.get("namespace", "default") if resource.namespaced else None
            name = {} if verb == "create" else {"name": metadata["name"]}
            target = resource if subresource is None else resource.subresources[subresource]
            answer = getattr(target, verb)(namespace=namespace, serialize=False, **name, **options)
            data = answer.data
        self.warnings += [f"{request}: {text}" for text in answer.headers.getlist("Warning")]
        answered: Manifest = json.loads(data)
        return answered

    def _dynamic(self) -> DynamicClient:
        with self._discovery:
            if self._connected is None:
                self._connected = _ImpatientClient(self.client, cache_file=str(self._discovery_cache))
            return self._connected

    def _resource(self, api_version: str, kind: str) -> Resource:
        with self._discovery:
            if (api_version, kind) not in self._found:
                # Without prefix and group, discovery would query every group that has a `v1`.
                group, _, version = api_version.rpartition("/")
                named = {"prefix": "apis", "group": group} if group else {"prefix": "api"}
                try:
                    found = self._dynamic().resources.get(**named, api_version=version, kind=kind)
                except ResourceNotFoundError as error:
                    raise unknown_kind(api_version, kind) from error
                except Exception:
                    self._connected = None  # an interrupted discovery leaves incomplete tables
                    raise
                self._found[api_version, kind] = found
            return self._found[api_version, kind]

    @contextmanager
    def _translated(self, request: str) -> Iterator[None]:
        """Translate the client's errors into ours."""
        try:
            yield
        except DynamicApiError as error:
            raise ApiError.from_body(error.body or "", code=error.status, request=request) from error
        except (HTTPError, OSError, ApiException) as error:
            raise ConnectionLostError(
                f"cannot {request}: the API server {self.server} does not answer: {reason_of(error)}",
                remedy="check the network, VPN or proxy, and that cluster.public_cidrs contains this machine's address",
            ) from error


class _ImpatientClient(DynamicClient):
    """The dynamic client with timeouts on every request, including discovery."""

    def request(self, method: str, path: str, body: object = None, **options: Any) -> Any:  # noqa: ANN401 - the base class's
        options.setdefault("_request_timeout", (_CONNECT_SECONDS, _READ_SECONDS))
        return super().request(method, path, body=body, **options)


def _writing(manager: str, *, is_dry_run: bool) -> dict[str, Any]:
    """Options of every request that writes a whole object."""
    strict = {"field_manager": manager, "query_params": [("fieldValidation", "Strict")]}
    return {**strict, "dry_run": "All"} if is_dry_run else strict


def _split(chunks: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


def _name(manifest: Mapping[str, Any]) -> str:
    metadata = manifest["metadata"]
    namespace = f"{metadata['namespace']}/" if "namespace" in metadata else ""
    return f"{manifest['kind']} {namespace}{metadata.get('name', '')}".rstrip()  # a review has no name

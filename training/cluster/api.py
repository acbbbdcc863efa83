"""The API server as the commands need it: paths in, plain data out, and two kinds of errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from infra.spec.manifest import Manifest
from training.cluster.errors import ApiError, LostConnectionError
from training.cluster.refusals import explain

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0
_SILENCE_SECONDS = 60.0
"""A stream that is silent for so long is opened again: behind a dead network nothing else would end it."""


class Api:
    """One API server.

    Every method raises LostConnectionError where the server cannot be reached or breaks off, and ApiError where it
    refuses.
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.server: str = client.configuration.host

    def read(self, path: str) -> Manifest | None:
        """The object at a path; None where there is none."""
        try:
            return self._ask("GET", path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def items(self, path: str, *, labels: str = "", fields: str = "") -> list[Manifest]:
        """The objects of a collection, chosen by label and field selectors."""
        query = [("labelSelector", labels), ("fieldSelector", fields)]
        found: list[Manifest] = self._ask("GET", path, query=[pair for pair in query if pair[1]])["items"]
        return found

    def apply(self, path: str, manifest: Manifest, *, manager: str, takes_over: bool = False) -> Manifest:
        """Server-side apply, under strict field validation.

        The same request may be sent again after a lost answer: it then changes nothing.

        Args:
            path: of the object.
            manifest: the fields that shall be so.
            manager: who owns them from now on.
            takes_over: take fields from other managers that give them another value, which is a conflict (409) otherwise.
        """
        query = [("fieldManager", manager), ("fieldValidation", "Strict"), ("force", str(takes_over).lower())]
        kind = "application/apply-patch+yaml"
        return self._ask("PATCH", path, query=query, body=manifest, content=kind, doing=_doing("submit", manifest))

    def patch(self, path: str, change: Manifest, *, doing: str) -> Manifest:
        """JSON merge patch; `doing` is how a refusal calls it."""
        return self._ask("PATCH", path, body=change, content="application/merge-patch+json", doing=doing)

    def delete(self, path: str, *, uid: str) -> None:
        """Have an object of this uid deleted with all that it owns; gone already is as good."""
        options = {"propagationPolicy": "Foreground", "preconditions": {"uid": uid}}
        try:
            self._ask("DELETE", path, body=options)
        except ApiError as error:
            if error.code not in {404, 409}:
                raise

    def lines(self, path: str, query: Mapping[str, str]) -> Iterator[str]:
        """The lines of a text that may still grow; ends where the server ends it."""
        pairs = list(query.items())
        with _lost_connections(self.server):
            response = self._send("GET", path, query=pairs, timeout=(_CONNECT_SECONDS, _SILENCE_SECONDS))
            with closing(response.response) as body:
                if response.status >= 300:
                    raise _refusal(body.data, code=response.status, doing=f"read {path}")
                yield from _split(body.stream())

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Manifest | None = None,
        content: str = "application/json",
        doing: str = "",
    ) -> Manifest:
        with _lost_connections(self.server):
            response = self._send(method, path, query=query, body=body, content=content)
            data = response.read()
        if response.status >= 300:
            raise _refusal(data, code=response.status, doing=doing or f"{method.lower()} {path}")
        answer: Manifest = json.loads(data)
        return answer

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Manifest | None = None,
        content: str = "application/json",
        timeout: tuple[float, float] = (_CONNECT_SECONDS, _READ_SECONDS),
    ) -> Any:  # noqa: ANN401 - the client has no types
        request = self._client.param_serialize(
            method,
            path,
            query_params=list(query),
            header_params={"Accept": "application/json", "Content-Type": content},
            body=body,
            auth_settings=["BearerToken"],
        )
        return self._client.call_api(*request, _request_timeout=timeout)


@contextmanager
def _lost_connections(server: str) -> Iterator[None]:
    try:
        yield
    except (HTTPError, OSError, ApiException) as error:
        # urllib3 wraps the cause in the last retry's error, the client in its own where TLS fails.
        words = " ".join(str(getattr(error, "reason", None) or error).split())
        raise LostConnectionError(
            f"the API server {server} does not answer: {words}",
            remedy="is the network, VPN or proxy up, and does the environment's file give this address access?",
        ) from error


def _refusal(data: bytes, *, code: int, doing: str) -> ApiError:
    try:
        status: Manifest = json.loads(data)
    except ValueError:
        status = {"message": data.decode(errors="replace")[:200]}
    meaning = explain({**status, "code": code}, doing=doing)
    return ApiError(meaning.message, remedy=meaning.remedy, code=code, reason=str(status.get("reason", "")))


def _split(chunks: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


def _doing(verb: str, manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    return f"{verb} {manifest['kind']} {metadata['namespace']}/{metadata['name']}"

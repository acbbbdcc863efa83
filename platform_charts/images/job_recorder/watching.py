"""Lists and watches the objects of a namespace, and keeps at it: resumes where a watch ended, lists again where it cannot."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, NamedTuple

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from .fold import JOB_LABEL, Object

_PAGE = 200
"""Objects of a request for a list: a RayJob has some 20 kB."""

_CONNECT_SECONDS, _READ_SECONDS = 5.0, 60.0
_WATCH_SECONDS = 240
_LONGEST_PAUSE = 30.0


class Kind(NamedTuple):
    """A kind of objects.

    Attributes:
        name: e.g. `Pod`.
        path: of the objects of a namespace.
        labels: label selector.
    """

    name: str
    path: str
    labels: str = ""


KINDS = (
    Kind("RayJob", "/apis/ray.io/v1/namespaces/{namespace}/rayjobs"),
    Kind("RayCluster", "/apis/ray.io/v1/namespaces/{namespace}/rayclusters"),
    Kind("Workload", "/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads"),
    Kind("Pod", "/api/v1/namespaces/{namespace}/pods", JOB_LABEL),
    Kind("Event", "/api/v1/namespaces/{namespace}/events"),
)
"""In the order in which they are listed first, so that the job of an object is known before the object."""


class Seen(NamedTuple):
    """An object as the API server has it, or had it when it was deleted."""

    kind: str
    found: Object
    is_gone: bool


class Listed(NamedTuple):
    """The UIDs of all objects of a kind in a namespace."""

    kind: str
    namespace: str
    uids: frozenset[str]


Sink = Callable[[Seen | Listed], None]


class Watch:
    """The objects of one kind in one namespace.

    Args:
        api: client of the API server.
        kind: what to watch.
        namespace: where.
        sink: takes what is seen.
        say: takes a line about a problem.
    """

    def __init__(
        self, api: client.ApiClient, kind: Kind, namespace: str, *, sink: Sink, say: Callable[[str], None]
    ) -> None:
        self._api = api
        self._kind = kind
        self._namespace = namespace
        self._sink = sink
        self._say = say
        self._version = ""

    def list_all(self) -> None:
        """List the objects; the watch continues from there.

        Raises:
            ApiException: the API server refuses it.
            HTTPError: it does not answer.
        """
        uids, token, version = set(), "", ""
        while True:
            page = json.loads(self._get({"limit": str(_PAGE), "continue": token}).read())
            for one in page["items"]:
                uids.add(one["metadata"]["uid"])
                self._sink(Seen(self._kind.name, one, is_gone=False))
            version = page["metadata"]["resourceVersion"]
            if not (token := page["metadata"].get("continue", "")):
                break
        self._version = version
        self._sink(Listed(self._kind.name, self._namespace, frozenset(uids)))

    def run(self) -> None:
        """Watch for ever. A broken connection, a refusal and a version that is too old are survived."""
        pause, said = 1.0, ""
        while True:
            try:
                if not self._version:
                    self.list_all()
                self._watch()
            except (ApiException, HTTPError, OSError, ValueError) as error:
                if getattr(error, "status", None) == HTTPStatus.GONE:
                    self._version = ""
                    continue
                problem = f"{self._namespace}: cannot watch {self._kind.name}: {reason_of(error)}"
                if problem != said:
                    self._say(problem)
                said = problem
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                pause, said = 1.0, ""

    def _watch(self) -> None:
        """Watch until the API server ends it, which it does after some minutes, or the version is too old."""
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(_WATCH_SECONDS)}
        answer = self._get({**query, "resourceVersion": self._version}, seconds=_WATCH_SECONDS + _READ_SECONDS)
        try:
            for event in _lines(answer.response.stream(decode_content=True)):
                kind, found = event["type"], event["object"]
                if kind == "ERROR":
                    self._version = ""  # too old, almost always: what was missed is in a new list
                    return
                self._version = found["metadata"]["resourceVersion"]
                if kind != "BOOKMARK":
                    self._sink(Seen(self._kind.name, found, is_gone=kind == "DELETED"))
        finally:
            answer.response.close()

    def _get(self, query: dict[str, str], *, seconds: float = _READ_SECONDS) -> Any:  # noqa: ANN401 - the client's answer
        given = {**query, "labelSelector": self._kind.labels}
        request = self._api.param_serialize(
            method="GET",
            resource_path=self._kind.path.format(namespace=self._namespace),
            query_params=[(key, value) for key, value in given.items() if value],
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        answer = self._api.call_api(*request, _request_timeout=(_CONNECT_SECONDS, seconds))
        if answer.status >= HTTPStatus.BAD_REQUEST:
            answer.read()
            raise ApiException(http_resp=answer)
        return answer


def _lines(chunks: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield json.loads(line)


def reason_of(error: Exception) -> str:
    """Why a request failed, in one line."""
    if isinstance(error, ApiException):
        return f"{error.status} {error.reason}"
    return f"{type(error).__name__}: {error}"

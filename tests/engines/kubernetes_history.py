"""Every state of the objects of a namespace, from watches: a change that is undone a moment later is not missed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlencode

from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError
from infra.spec.manifest import Manifest

_ROUND_SECONDS = 1


@dataclass
class Life:
    """The states of one object.

    Attributes:
        kind: plural name of its kind, e.g. `pods`.
        name: its name.
        states: each state that the API server reported, oldest first.
        is_deleted: whether it is gone.
    """

    kind: str
    name: str
    states: list[Manifest] = field(default_factory=list)
    is_deleted: bool = False


class History:
    """The lives of the objects of some kinds in one namespace, by uid.

    A watch continues where it was cut off, as by a change of its CRD. One that the API server cannot continue fails the history.
    """

    def __init__(self, api: KubernetesApi) -> None:
        self.lives: dict[str, Life] = {}
        self.initial: frozenset[str] = frozenset()
        self._api = api
        self._ending = threading.Event()

    def end(self) -> None:
        """Let the watches end after one more round, which sees everything that has happened until now."""
        self._ending.set()

    def relist(self, kind: str, path: str) -> str:
        """Add the objects as they are now; returns the resource version to watch from."""
        answer = self._api.read_raw(path)
        found = {one["metadata"]["uid"]: one for one in answer["items"]}
        for one in found.values():
            self._add(kind, one)
        for uid, life in tuple(self.lives.items()):
            life.is_deleted |= life.kind == kind and uid not in found
        return str(answer["metadata"]["resourceVersion"])

    def follow(self, kind: str, path: str, version: str) -> None:
        """Watch from a resource version until the history ends, and read once more what a watch does not report.

        A changed schema changes what the API server reads from its store, without an event.
        """
        is_last = False
        while not is_last:
            is_last = self._ending.is_set()
            version = self._round(kind, path, version)
        self.relist(kind, path)

    def _round(self, kind: str, path: str, version: str) -> str:
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": _ROUND_SECONDS}
        for event in map(json.loads, self._api.read_text(f"{path}?{urlencode(query)}").splitlines()):
            if event["type"] == "ERROR":
                raise ApiError(f"the watch of {kind} cannot go on: {event['object']}", code=event["object"]["code"])
            self._add(kind, event["object"])
            self.lives[event["object"]["metadata"]["uid"]].is_deleted = event["type"] == "DELETED"
            version = event["object"]["metadata"]["resourceVersion"]
        return version

    def _add(self, kind: str, one: Manifest) -> None:
        life = self.lives.setdefault(one["metadata"]["uid"], Life(kind, one["metadata"]["name"]))
        # Items of a list do not name their kind.
        state = {key: value for key, value in one.items() if key not in {"apiVersion", "kind"}}
        if not life.states or life.states[-1] != state:
            life.states.append(state)


@contextmanager
def watching(api: KubernetesApi, kinds: Mapping[str, str], *, namespace: str) -> Iterator[History]:
    """The history of the objects while the context is open; it is complete when the context is left.

    Args:
        api: the API server.
        kinds: path of the API group and version by kind, e.g. `/api/v1` for `pods`.
        namespace: the namespace.
    """
    history = History(api)
    paths = {kind: f"{group}/namespaces/{namespace}/{kind}" for kind, group in kinds.items()}
    versions = {kind: history.relist(kind, path) for kind, path in paths.items()}
    history.initial = frozenset(history.lives)
    with ThreadPoolExecutor(len(paths)) as pool:
        watches = [pool.submit(history.follow, kind, path, versions[kind]) for kind, path in paths.items()]
        try:
            yield history
        finally:
            history.end()
        for watch in watches:
            watch.result()  # raises its error: a watch that failed has not seen everything

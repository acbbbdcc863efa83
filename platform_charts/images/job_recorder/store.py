"""Keeps records in ConfigMaps of the jobs' namespaces, and reads nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import NamedTuple, cast

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from .bounds import to_text
from .document import VERSION, Record
from .fold import PREFIX
from .pods import NodeFacts, node_facts

RECORD_LABEL = f"{PREFIX}record"
"""Label of a record's ConfigMap: the name of its job."""

EXPIRY_ANNOTATION = f"{PREFIX}expires"
"""Annotation of a complete record: the time after which it is deleted."""

UID_ANNOTATION = f"{PREFIX}job-uid"
KEY = "record.json"
_MANAGER = "job-recorder"
_PAGE = 50
_SECONDS = 30.0


class Stored(NamedTuple):
    """A ConfigMap with a record.

    Attributes:
        name: of the ConfigMap.
        uid: of the job.
        created: time at which it was made.
        expires: time after which it is deleted; empty while the job is not over.
        record: None if it is complete, damaged, or of another version.
    """

    name: str
    uid: str
    created: str
    expires: str
    record: Record | None


def map_name(record: Record) -> str:
    """Name of a record's ConfigMap. No other ConfigMap of a job has a dot in its name, and every submission has its own."""
    return f"record.{record['name']}.{record['uid'][:8]}"


def expiry(record: Record) -> str:
    """When a complete record is deleted: like the job, so many days after its end."""
    end = datetime.fromisoformat(record["ended"]) + timedelta(days=record["kept_days"])
    return f"{end:%Y-%m-%dT%H:%M:%SZ}"


class Store:
    """The records of the teams' namespaces.

    Args:
        api: client of the API server.
    """

    def __init__(self, api: client.ApiClient) -> None:
        self._core = client.CoreV1Api(api)

    def stored(self, namespace: str) -> Iterator[Stored]:
        """The records of a namespace."""
        token = ""
        while True:
            page = self._core.list_namespaced_config_map(
                namespace, label_selector=RECORD_LABEL, limit=_PAGE, _continue=token, _request_timeout=_SECONDS
            )
            for one in page.items:
                notes = one.metadata.annotations or {}
                expires = notes.get(EXPIRY_ANNOTATION, "")
                record = None if expires else parsed((one.data or {}).get(KEY, ""))
                created = f"{one.metadata.creation_timestamp:%Y-%m-%dT%H:%M:%SZ}"
                yield Stored(one.metadata.name, notes.get(UID_ANNOTATION, ""), created, expires, record)
            if not (token := page.metadata._continue or ""):  # noqa: SLF001 - the client's name of `continue`
                return

    def write(self, record: Record, *, is_complete: bool) -> None:
        """Write a record in place of what is there.

        Raises:
            ApiException: the API server refuses it.
            HTTPError: it does not answer.
        """
        annotations = {UID_ANNOTATION: record["uid"], **({EXPIRY_ANNOTATION: expiry(record)} if is_complete else {})}
        labels = {
            "app.kubernetes.io/name": _MANAGER,
            "app.kubernetes.io/managed-by": _MANAGER,
            RECORD_LABEL: record["name"],
        }
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": map_name(record), "labels": labels, "annotations": annotations},
            "data": {KEY: to_text(record)},
        }
        self._core.patch_namespaced_config_map(
            map_name(record),
            record["namespace"],
            body,
            field_manager=_MANAGER,
            force=True,
            _content_type="application/apply-patch+yaml",
            _request_timeout=_SECONDS,
        )

    def delete(self, namespace: str, name: str) -> None:
        """Delete a ConfigMap; one that is gone is not an error."""
        try:
            self._core.delete_namespaced_config_map(name, namespace, _request_timeout=_SECONDS)
        except ApiException as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    def node(self, name: str) -> NodeFacts:
        """The facts of a node; none of them if it cannot be read, because a record without them is still one."""
        try:
            answer = self._core.read_node(name, _preload_content=False, _request_timeout=_SECONDS)
            return node_facts(json.loads(answer.data))
        except ApiException as error:
            return node_facts(None) if error.status == HTTPStatus.NOT_FOUND else NodeFacts()
        except (HTTPError, OSError):
            return NodeFacts()


def parsed(text: str) -> Record | None:
    """The record in a ConfigMap; None if this program cannot continue it."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("version") != VERSION:
        return None
    return cast("Record", found) if found.keys() >= Record.__required_keys__ else None

"""The records of a team's jobs, which `platform_charts.images.job_recorder` keeps in ConfigMaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from infra.spec.node_labels import LABEL_PREFIX
from observability.postmortem.record import JobRecord
from training.cluster.objects import CONFIG_MAP

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

RECORD_LABEL = f"{LABEL_PREFIX}/record"
"""Label of a record's ConfigMap: the name of its job."""

EXPIRY_ANNOTATION = f"{LABEL_PREFIX}/expires"
"""Annotation of a complete record: the time after which it is deleted."""

KEY = "record.json"


def records_of(api: KubernetesApi, namespace: str, name: str) -> list[JobRecord]:
    """The records of all submissions of a job of that name, newest first.

    Raises:
        ApiError: this user may not read them.
        RefusedError: one is damaged, or of another version; names its ConfigMap.
    """
    found = api.items(*CONFIG_MAP, namespace=namespace, labels=f"{RECORD_LABEL}={name}")
    return sorted(map(_parsed, found), key=lambda record: str(record.created), reverse=True)


def recorded_names(api: KubernetesApi, namespace: str) -> Sequence[str]:
    """The names of all jobs of a namespace that have a record, newest first; raises ApiError like `records_of`."""
    found = api.items(*CONFIG_MAP, namespace=namespace, labels=RECORD_LABEL)
    newest = sorted(found, key=lambda one: str(one["metadata"]["creationTimestamp"]), reverse=True)
    return list(dict.fromkeys(one["metadata"]["labels"][RECORD_LABEL] for one in newest))


def _parsed(config_map: Manifest) -> JobRecord:
    metadata = config_map["metadata"]
    try:
        record = JobRecord.model_validate_json((config_map.get("data") or {}).get(KEY, ""))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "JSON"
        raise RefusedError(
            f"ConfigMap {metadata['namespace']}/{metadata['name']} is not a record of a job that this checkout can read: "
            f"{where}: {error.errors()[0]['msg']}",
            remedy="use the checkout of the stack's version; delete it if it was changed by hand: "
            f"kubectl -n {metadata['namespace']} delete configmap {metadata['name']}",
        ) from error
    return record.model_copy(update={"is_complete": EXPIRY_ANNOTATION in (metadata.get("annotations") or {})})

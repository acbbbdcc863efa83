"""Columns that the stack adds to KubeRay's RayJob CRD, for `kubectl get rayjobs`.

A column shows one field of the object (Kubernetes, "Additional printer columns"); the annotations are written by
`platform_charts.images.job_progress`. KubeRay's own columns stay in front.
"""

from __future__ import annotations

import copy

from infra.spec.cluster_names import JOB_COLUMNS
from infra.spec.manifest import Manifest

_RAY_JOBS = "rayjobs.ray.io"

_AGE: Manifest = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
"""What the API server shows of a version without columns (Kubernetes, apiextensions-apiserver, pkg/apiserver/helpers.go)."""

_COLUMNS: tuple[Manifest, ...] = (
    *(
        {"name": name, "type": "string", "jsonPath": f".metadata.annotations.{key}"}
        for name, key in JOB_COLUMNS.items()
    ),
    # A priority above 0 limits a column to `kubectl get -o wide`.
    {"name": "message", "type": "string", "jsonPath": ".status.message", "priority": 1},
)


def with_job_columns(crd: Manifest) -> Manifest:
    """The CRD with the stack's columns in every version; unchanged if it is not RayJob's."""
    if crd["metadata"]["name"] != _RAY_JOBS:
        return crd
    versions = [
        {
            **version,
            "additionalPrinterColumns": [
                *version.get("additionalPrinterColumns", [_AGE]),
                *copy.deepcopy(_COLUMNS),
            ],
        }
        for version in crd["spec"]["versions"]
    ]
    return {**crd, "spec": {**crd["spec"], "versions": versions}}

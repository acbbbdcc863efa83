"""Rendered jobs against the schemas in KubeRay's CRDs, with unknown fields refused; the real API server checks the CEL rules."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema
import pytest

from infra.spec.manifest import Manifest
from tests.engines.kubernetes import crds
from tests.platform_charts.jobs.targets import job, rendered, target_of


@cache
def schema_of(kind: str) -> Manifest:
    """The v1 schema of a kind, with unknown fields as errors."""
    [crd] = [one for one in crds("kuberay") if one["spec"]["names"]["kind"] == kind]
    [version] = [one for one in crd["spec"]["versions"] if one["name"] == "v1"]
    closed: Manifest = close(version["schema"]["openAPIV3Schema"], is_top=True)
    return closed


def close(schema: Any, *, is_top: bool = False) -> Any:  # noqa: ANN401  # any JSON
    """The schema without additional properties, and with int-or-string values as either."""
    if isinstance(schema, list):
        return [close(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    inner = {key: close(value) for key, value in schema.items() if key != "format"}
    if "properties" in inner and isinstance(inner["properties"], dict) and not is_top:
        is_open = inner.get("x-kubernetes-preserve-unknown-fields", False)
        inner.setdefault("additionalProperties", is_open)
    return inner


JOBS = {
    "efa": job(group="a100"),
    "one pod": job(workers=2),
    "cpu": job(gpus_per_worker=0, workers=2, cpus_per_worker=1),
    "conformance": job(kind="conformance", command=("python", "-c", "pass")),
}


def test_jobs_have_only_fields_of_kuberays_schema() -> None:
    for request in JOBS.values():
        jsonschema.validate(rendered(request, target_of("prod")), schema_of("RayJob"))


def test_an_unknown_field_is_an_error() -> None:
    manifest = rendered(job(), target_of("prod"))
    manifest["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["nodeSelectors"] = {}
    with pytest.raises(jsonschema.ValidationError, match="nodeSelectors"):
        jsonschema.validate(manifest, schema_of("RayJob"))

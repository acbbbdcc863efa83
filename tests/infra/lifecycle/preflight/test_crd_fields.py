"""Which fields of an object a schema drops; with KubeRay's CRDs, and small schemas for each rule of Kubernetes."""

from __future__ import annotations

from typing import Any

from infra.lifecycle.preflight.crd_fields import dropped
from infra.lifecycle.sandbox.modules import KUBERAY, PREVIOUS_KUBERAY, Module
from infra.spec.manifest import Manifest
from platform_charts.jobs.rayjob import render_job
from tests.engines.kubernetes import crds_of
from tests.engines.kubernetes_jobs import job
from tests.training.cluster.team_cluster import target

KEEPS = {"x-kubernetes-preserve-unknown-fields": True}
EMBEDDED = {"x-kubernetes-embedded-resource": True, "properties": {"spec": {"properties": {}}}}


def schema(kuberay: Module) -> Manifest:
    """The schema of a RayJob's spec."""
    (crd,) = [one for one in crds_of(kuberay) if one["spec"]["names"]["kind"] == "RayJob"]
    (version,) = [one for one in crd["spec"]["versions"] if one["storage"]]
    found: Manifest = version["schema"]["openAPIV3Schema"]
    return found


def test_a_job_has_no_field_that_the_pinned_crd_lacks_and_one_that_the_minor_before_lacks() -> None:
    *_, rayjob = render_job(job("fields", team="research", group="a10g", workers=8), target())
    assert list(dropped({"spec": rayjob["spec"]}, schema(KUBERAY))) == []
    # The API server of a cluster with these CRDs refuses the job for this field.
    assert list(dropped({"spec": rayjob["spec"]}, schema(PREVIOUS_KUBERAY))) == ["spec.preRunningDeadlineSeconds"]


def test_a_field_is_dropped_unless_the_schema_names_it_or_keeps_what_it_does_not_name() -> None:
    cases: tuple[tuple[dict[str, Any], dict[str, Any], list[str]], ...] = (
        ({"a": 1}, {"properties": {"a": {}}}, []),
        ({"a": 1, "b": {"c": 2}}, {"properties": {"a": {}}}, ["b"]),
        ({"a": {"b": 1}}, {"properties": {"a": {"properties": {}}}}, ["a.b"]),
        ({"a": {"b": 1}}, {"properties": {"a": KEEPS}}, []),
        ({"a": {"b": 1}, "c": 2}, {**KEEPS, "properties": {"a": {"properties": {}}}}, ["a.b"]),
        ({"a": {"any": {"b": 1}}}, {"properties": {"a": {"additionalProperties": {"properties": {}}}}}, ["a.any.b"]),
        ({"a": {"any": "text"}}, {"properties": {"a": {"additionalProperties": True}}}, []),
        ({"a": [{"b": 1}, {"c": 2}]}, {"properties": {"a": {"items": {"properties": {"b": {}}}}}}, ["a[].c"]),
        ({"kind": "Pod", "metadata": {"name": "x"}, "spec": {"b": 1}}, EMBEDDED, ["spec.b"]),
    )
    for value, schema, paths in cases:
        assert list(dropped(value, schema)) == paths, value

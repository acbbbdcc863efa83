"""All objects together, storage and monitors."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from infra.spec.cluster_names import DATASETS_CLAIM, RAY_PORTS, RUNS_CLAIM
from infra.spec.manifest import Manifest
from platform_charts.objects.phases import platform_objects
from platform_charts.objects.queueing import aggregated_roles
from platform_charts.objects.storage import storage
from tests.engines.kubernetes import crds
from tests.platform_charts.objects.samples import (
    ENVIRONMENTS,
    FACTS,
    RELEASE,
    all_of,
    named,
    objects_of,
    of_kind,
    settings_of,
)

_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_phases_are_in_order(environment: str) -> None:
    phases = ["namespaces", "policies", "storage", "queueing", "teams", "gpu", "mlflow", "monitoring"]
    assert list(objects_of(environment)) == phases


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_objects_are_unique(environment: str) -> None:
    counted = Counter(
        (one["apiVersion"], one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"])
        for one in all_of(environment)
    )
    assert [identity for identity, count in counted.items() if count > 1] == []


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_object_is_in_a_namespace_of_the_stack(environment: str) -> None:
    ours = {one["metadata"]["name"] for one in of_kind(all_of(environment), "Namespace")}
    assert {one["metadata"]["namespace"] for one in all_of(environment) if "namespace" in one["metadata"]} <= ours


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_object_has_the_platforms_labels(environment: str) -> None:
    helms = {one["metadata"]["name"] for one in aggregated_roles()}
    for one in all_of(environment):
        if one["kind"] == "ClusterRole" and one["metadata"]["name"] in helms:
            continue
        labels = one["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "ray-train-platform"
        assert labels["app.kubernetes.io/version"] == RELEASE.platform
        assert all(_LABEL.fullmatch(value) for value in labels.values())


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_objects_are_plain_data_and_deterministic(environment: str) -> None:
    first = objects_of(environment)
    again = platform_objects(settings_of(environment), RELEASE, FACTS)
    assert json.dumps(first) == json.dumps(again)
    assert yaml.safe_load(yaml.safe_dump(list(all_of(environment)))) == list(all_of(environment))


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("project", ["kueue", "prometheus-operator"])
def test_custom_resources_match_the_schemas_of_their_crds(environment: str, project: str) -> None:
    schemas = {
        (f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]): version
        for crd in crds(project)
        for version in crd["spec"]["versions"]
    }
    group = "kueue.x-k8s.io/" if project == "kueue" else "monitoring.coreos.com/"
    found = [one for one in all_of(environment) if one["apiVersion"].startswith(group)]
    assert found, f"no object of {group}"
    for one in found:
        version = schemas[one["apiVersion"], one["kind"]]
        assert version["storage"]
        schema = _strict(version["schema"]["openAPIV3Schema"])
        Draft202012Validator(schema).validate(one)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_claim_has_a_reserved_volume_that_is_retained(environment: str) -> None:
    objects = all_of(environment)
    claims = of_kind(objects, "PersistentVolumeClaim")
    # Two for each team, and the one by which datasets are written.
    assert len(claims) == len(of_kind(objects, "PersistentVolume")) == 2 * len(settings_of(environment).teams) + 1
    for claim in claims:
        volume = named(objects, "PersistentVolume", claim["spec"]["volumeName"])["spec"]
        assert volume["claimRef"] == {key: claim["metadata"][key] for key in ("namespace", "name")}
        assert volume["storageClassName"] == claim["spec"]["storageClassName"] == "efs"
        assert volume["persistentVolumeReclaimPolicy"] == "Retain"


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_team_mounts_the_datasets_read_only_and_its_own_runs(environment: str) -> None:
    objects = all_of(environment)
    for team in settings_of(environment).teams:
        seen = {}
        for claim in of_kind(objects, "PersistentVolumeClaim", namespace=team.name):
            volume = named(objects, "PersistentVolume", claim["spec"]["volumeName"])["spec"]
            seen[claim["metadata"]["name"]] = (volume["csi"]["volumeHandle"], volume["mountOptions"])
        own = FACTS.team_access_points[team.name]
        assert seen == {
            DATASETS_CLAIM: (f"{FACTS.file_system_id}::{FACTS.datasets_access_point}", ["tls", "iam", "ro"]),
            RUNS_CLAIM: (f"{FACTS.file_system_id}::{own}", ["tls", "iam"]),
        }


def test_volumes_have_an_access_mode_that_the_efs_driver_supports() -> None:
    volumes = of_kind(objects_of("prod")["storage"], "PersistentVolume")
    assert {mode for volume in volumes for mode in volume["spec"]["accessModes"]} == {"ReadWriteMany"}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_storage_class_of_every_volume_and_claim_exists(environment: str) -> None:
    objects = all_of(environment)
    classes = {one["metadata"]["name"]: one for one in objects if one["kind"] == "StorageClass"}
    used = {one["spec"]["storageClassName"] for one in objects if "storageClassName" in one.get("spec", {})}
    assert used == {"efs"}
    assert used <= set(classes)
    # Nothing is provisioned: a claim without a volume stays pending, and a claim with one is bound at once.
    assert classes["efs"]["provisioner"] == "kubernetes.io/no-provisioner"
    assert classes["efs"]["volumeBindingMode"] == "Immediate"


def test_block_volumes_are_encrypted_and_bound_when_their_pod_is_scheduled() -> None:
    block = named(objects_of("dev")["storage"], "StorageClass", "gp3")
    assert block["parameters"] == {
        "type": "gp3",
        "encrypted": "true",
        "tagSpecification_1": "platform=ray-train-platform",
        "tagSpecification_2": "stack=ray-train-platform/dev",
        "tagSpecification_3": "kind=dev",
    }
    assert block["volumeBindingMode"] == "WaitForFirstConsumer"
    assert block["metadata"]["annotations"] == {"storageclass.kubernetes.io/is-default-class": "true"}


def test_block_volumes_can_use_the_stacks_key() -> None:
    key = "arn:aws:kms:us-east-1:111122223333:key/1"
    objects = storage(
        settings_of("dev"),
        RELEASE,
        file_system_id="fs-0a",
        datasets_access_point="fsap-0a",
        team_access_points=FACTS.team_access_points,
        volume_key_arn=key,
    )
    assert named(objects, "StorageClass", "gp3")["parameters"]["kmsKeyId"] == key


def test_prometheus_scrapes_three_ports_of_a_head_and_one_of_a_worker() -> None:
    objects = [one for one in objects_of("dev")["monitoring"] if one["kind"] == "PodMonitor"]
    ports = {
        one["metadata"]["name"]: [endpoint["port"] for endpoint in one["spec"]["podMetricsEndpoints"]]
        for one in objects
    }
    assert ports == {"ray-heads": ["metrics", "as-metrics", "dash-metrics"], "ray-workers": ["metrics"]}
    assert {port for names in ports.values() for port in names} <= RAY_PORTS.keys()


def test_series_have_labels_for_cluster_team_and_job() -> None:
    [endpoint] = named(objects_of("dev")["monitoring"], "PodMonitor", "ray-workers")["spec"]["podMetricsEndpoints"]
    relabelings = {one["targetLabel"]: one["sourceLabels"] for one in endpoint["relabelings"]}
    assert relabelings == {
        "ray_io_cluster": ["__meta_kubernetes_pod_label_ray_io_cluster"],
        "team": ["__meta_kubernetes_pod_label_ray_train_platform_team"],
        "training_job": ["__meta_kubernetes_pod_label_ray_train_platform_job"],
    }


def _strict(schema: Any) -> Manifest:  # noqa: ANN401 - JSON
    """The schema with unknown fields rejected, as in the API server's strict validation."""
    found = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes") and key != "format"}
    if schema.get("x-kubernetes-int-or-string"):
        found["type"] = ["integer", "string"]
    if "properties" in schema:
        found["properties"] = {name: _strict(one) for name, one in schema["properties"].items()}
        if "metadata" not in schema["properties"]:
            found["additionalProperties"] = False
    if "items" in schema:
        found["items"] = _strict(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = _strict(schema["additionalProperties"])
    return found

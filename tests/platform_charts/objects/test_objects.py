"""What holds for all of our objects together, and for storage and monitors, which are small."""

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
def test_phases_come_in_the_order_of_need(environment: str) -> None:
    phases = ["namespaces", "policies", "storage", "queueing", "gpu", "mlflow", "monitoring"]
    assert list(objects_of(environment)) == phases


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_no_two_objects_are_the_same_one(environment: str) -> None:
    counted = Counter(
        (one["apiVersion"], one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"])
        for one in all_of(environment)
    )
    assert [identity for identity, count in counted.items() if count > 1] == []


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_everything_lies_in_a_namespace_of_ours(environment: str) -> None:
    ours = {one["metadata"]["name"] for one in of_kind(all_of(environment), "Namespace")}
    assert {one["metadata"]["namespace"] for one in all_of(environment) if "namespace" in one["metadata"]} <= ours


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_object_says_whose_it_is_and_of_which_release(environment: str) -> None:
    for one in all_of(environment):
        labels = one["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "ray-train-platform"
        assert labels["app.kubernetes.io/version"] == RELEASE.platform
        assert all(_LABEL.fullmatch(value) for value in labels.values())


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_objects_are_plain_data_and_come_out_the_same_each_time(environment: str) -> None:
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
def test_every_claim_has_a_volume_that_is_kept_for_it_and_outlives_it(environment: str) -> None:
    objects = objects_of(environment)["storage"]
    claims = of_kind(objects, "PersistentVolumeClaim")
    assert len(claims) == len(of_kind(objects, "PersistentVolume")) == 2 * len(settings_of(environment).teams)
    for claim in claims:
        volume = named(objects, "PersistentVolume", claim["spec"]["volumeName"])["spec"]
        assert volume["claimRef"] == {key: claim["metadata"][key] for key in ("namespace", "name")}
        assert volume["storageClassName"] == claim["spec"]["storageClassName"] == "efs"
        assert volume["persistentVolumeReclaimPolicy"] == "Retain"


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_team_reads_the_datasets_and_writes_its_own_runs_only(environment: str) -> None:
    objects = objects_of(environment)["storage"]
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


def test_no_volume_has_an_access_mode_that_the_driver_refuses_to_mount() -> None:
    volumes = of_kind(objects_of("prod")["storage"], "PersistentVolume")
    assert {mode for volume in volumes for mode in volume["spec"]["accessModes"]} == {"ReadWriteMany"}


def test_block_volumes_are_encrypted_and_made_where_their_pod_goes() -> None:
    block = named(objects_of("dev")["storage"], "StorageClass", "gp3")
    assert block["parameters"] == {"type": "gp3", "encrypted": "true"}
    assert block["volumeBindingMode"] == "WaitForFirstConsumer"
    assert block["metadata"]["annotations"] == {"storageclass.kubernetes.io/is-default-class": "true"}


def test_block_volumes_take_the_stacks_own_key_where_there_is_one() -> None:
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


def test_a_head_is_scraped_at_three_ports_and_a_worker_at_one() -> None:
    objects = objects_of("dev")["monitoring"]
    ports = {
        one["metadata"]["name"]: [endpoint["port"] for endpoint in one["spec"]["podMetricsEndpoints"]]
        for one in objects
    }
    assert ports == {"ray-heads": ["metrics", "as-metrics", "dash-metrics"], "ray-workers": ["metrics"]}
    assert {port for names in ports.values() for port in names} <= RAY_PORTS.keys()


def test_series_tell_cluster_team_and_job() -> None:
    [endpoint] = named(objects_of("dev")["monitoring"], "PodMonitor", "ray-workers")["spec"]["podMetricsEndpoints"]
    relabelings = {one["targetLabel"]: one["sourceLabels"] for one in endpoint["relabelings"]}
    assert relabelings == {
        "ray_io_cluster": ["__meta_kubernetes_pod_label_ray_io_cluster"],
        "team": ["__meta_kubernetes_pod_label_ray_train_platform_team"],
        "training_job": ["__meta_kubernetes_pod_label_ray_train_platform_job"],
    }


def _strict(schema: Any) -> Manifest:  # noqa: ANN401 - JSON
    """The schema, with unknown fields refused as the API server refuses them under strict validation."""
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

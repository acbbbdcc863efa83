"""All objects together, storage and monitors."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import yaml

from infra.spec.cluster_names import DATA_NAMESPACE, DATASETS_CLAIM, RAY_PORTS, RUNS_CLAIM
from platform_charts.objects.phases import platform_objects
from platform_charts.objects.queueing import aggregated_roles
from platform_charts.objects.storage import storage
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


def test_objects_are_plain_unique_labelled_and_in_a_namespace_of_the_stack_and_their_phases_in_order() -> None:
    helms = {one["metadata"]["name"] for one in aggregated_roles()}
    phases = ["namespaces", "policies", "storage", "queueing", "teams", "gpu", "mlflow", "monitoring"]
    for environment in ENVIRONMENTS:
        made, objects = objects_of(environment), all_of(environment)
        assert list(made) == phases
        assert json.dumps(made) == json.dumps(platform_objects(settings_of(environment), RELEASE, FACTS))
        assert yaml.safe_load(yaml.safe_dump(list(objects))) == list(objects)
        ours = {one["metadata"]["name"] for one in of_kind(objects, "Namespace")}
        counted = Counter[tuple[str, str, str | None, str]]()
        for one in objects:
            metadata = one["metadata"]
            counted[one["apiVersion"], one["kind"], metadata.get("namespace"), metadata["name"]] += 1
            assert metadata.get("namespace") in {None, *ours}
            if one["kind"] == "ClusterRole" and metadata["name"] in helms:
                continue
            assert metadata["labels"]["app.kubernetes.io/managed-by"] == "ray-train-platform"
            assert metadata["labels"]["app.kubernetes.io/version"] == RELEASE.platform
            assert all(_LABEL.fullmatch(value) for value in metadata["labels"].values())
        assert set(counted.values()) == {1}


def test_every_claim_has_a_reserved_volume_that_is_retained_of_a_class_that_exists() -> None:
    for environment in ENVIRONMENTS:
        objects = all_of(environment)
        classes = {one["metadata"]["name"]: one for one in of_kind(objects, "StorageClass")}
        # Nothing is provisioned: a claim without a volume stays pending, and a claim with one is bound at once.
        assert classes["efs"]["provisioner"] == "kubernetes.io/no-provisioner"
        assert classes["efs"]["volumeBindingMode"] == "Immediate"
        claims = of_kind(objects, "PersistentVolumeClaim")
        # Two for each team, and the one by which datasets are written.
        assert len(claims) == len(of_kind(objects, "PersistentVolume")) == 2 * len(settings_of(environment).teams) + 1
        for claim in claims:
            volume = named(objects, "PersistentVolume", claim["spec"]["volumeName"])["spec"]
            assert volume["claimRef"] == {key: claim["metadata"][key] for key in ("namespace", "name")}
            assert volume["storageClassName"] == claim["spec"]["storageClassName"] == "efs"
            assert volume["persistentVolumeReclaimPolicy"] == "Retain"
            assert volume["accessModes"] == ["ReadWriteMany"], "what the EFS driver supports"


def test_a_team_mounts_the_datasets_read_only_and_its_own_runs_and_only_the_copies_write_datasets() -> None:
    objects = all_of("prod")

    def seen(namespace: str) -> dict[str, tuple[str, list[str]]]:
        claims = of_kind(objects, "PersistentVolumeClaim", namespace=namespace)
        volumes = [named(objects, "PersistentVolume", claim["spec"]["volumeName"])["spec"] for claim in claims]
        return {
            claim["metadata"]["name"]: (volume["csi"]["volumeHandle"], volume["mountOptions"])
            for claim, volume in zip(claims, volumes, strict=True)
        }

    datasets = f"{FACTS.file_system_id}::{FACTS.datasets_access_point}"
    for team in settings_of("prod").teams:
        own = f"{FACTS.file_system_id}::{FACTS.team_access_points[team.name]}"
        assert seen(team.name) == {DATASETS_CLAIM: (datasets, ["tls", "iam", "ro"]), RUNS_CLAIM: (own, ["tls", "iam"])}
    assert seen(DATA_NAMESPACE) == {DATASETS_CLAIM: (datasets, ["tls", "iam"])}


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
    places: dict[str, Any] = {"file_system_id": "fs-0a", "datasets_access_point": "fsap-0a"}
    points = FACTS.team_access_points
    objects = storage(settings_of("dev"), RELEASE, **places, team_access_points=points, volume_key_arn=key)
    assert named(objects, "StorageClass", "gp3")["parameters"]["kmsKeyId"] == key


def test_prometheus_scrapes_three_ports_of_a_head_and_one_of_a_worker_with_cluster_team_and_job_as_labels() -> None:
    monitors = {one["metadata"]["name"]: one for one in of_kind(objects_of("dev")["monitoring"], "PodMonitor")}
    ports = {name: [end["port"] for end in one["spec"]["podMetricsEndpoints"]] for name, one in monitors.items()}
    assert ports == {"ray-heads": ["metrics", "as-metrics", "dash-metrics"], "ray-workers": ["metrics"]}
    assert {port for names in ports.values() for port in names} <= RAY_PORTS.keys()
    [endpoint] = monitors["ray-workers"]["spec"]["podMetricsEndpoints"]
    assert {one["targetLabel"]: one["sourceLabels"] for one in endpoint["relabelings"]} == {
        "ray_io_cluster": ["__meta_kubernetes_pod_label_ray_io_cluster"],
        "team": ["__meta_kubernetes_pod_label_ray_train_platform_team"],
        "training_job": ["__meta_kubernetes_pod_label_ray_train_platform_job"],
    }

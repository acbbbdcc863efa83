"""FSx for Lustre in a cluster: its volumes on paper, and a job that mounts it on a real API server."""

from __future__ import annotations

import json

import pytest

from infra.lifecycle.sandbox.recorded import recorded
from infra.spec.manifest import Manifest
from infra.spec.release import load_release
from platform_charts.objects.phases import platform_objects
from tests.engines.kubernetes_jobs import job, rayjob
from tests.engines.kubernetes_platform import Environment, drifts, with_lustre
from tests.infra.aws.graphs import graph, settings_of
from tests.kuberay.expand import expand

VOLUME = "kubernetes:core/v1:PersistentVolume"


def storage_of(environment: str) -> dict[tuple[str, str], Manifest]:
    """Volumes, claims and classes of an environment, by kind and name."""
    settings = settings_of(environment)
    phases = platform_objects(settings, load_release(), recorded(settings).facts)
    objects = [one for phase in phases.values() for one in phase]
    kinds = {"PersistentVolume", "PersistentVolumeClaim", "StorageClass"}
    return {(one["kind"], one["metadata"]["name"]): one for one in objects if one["kind"] in kinds}


@pytest.mark.extended
def test_the_volume_of_a_team_is_the_root_of_the_file_system_read_only() -> None:
    stack = recorded(settings_of("lustre"))
    assert stack.facts.lustre is not None
    spec = storage_of("lustre")["PersistentVolume", "lustre-research"]["spec"]
    assert spec["csi"] == {
        "driver": "fsx.csi.aws.com",
        "volumeHandle": stack.outputs.storage.lustre_id,
        "volumeAttributes": {"dnsname": stack.facts.lustre.dns_name, "mountname": stack.facts.lustre.mount_name},
    }
    assert spec["mountOptions"] == ["ro", "flock"]
    assert spec["accessModes"] == ["ReadWriteMany"]
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"
    assert spec["claimRef"] == {"namespace": "research", "name": "lustre"}


def test_the_program_registers_the_volume_with_the_file_systems_outputs() -> None:
    recording = graph("lustre")
    volume = recording.find(VOLUME, "persistentvolume-lustre-research")
    assert volume.properties["spec"]["csi"]["volumeHandle"] == recording.outputs["storage"]["lustre_id"]
    assert "<<" not in json.dumps(volume.properties["spec"]["csi"])
    (file_system,) = recording.of_type("aws:fsx/lustreFileSystem:LustreFileSystem")
    assert file_system.urn in volume.property_dependencies["spec"]


@with_lustre
def test_the_claim_of_the_team_is_bound_and_the_pods_that_mount_it_pass_pod_security(environment: Environment) -> None:
    claims = [one for one in environment.manifests if one["kind"] == "PersistentVolumeClaim"]
    (claim,) = [one for one in claims if one["metadata"]["name"] == "lustre"]
    environment.cluster.await_(claim, lambda found: found["status"]["phase"] == "Bound", what="bound")
    assert not drifts(environment.cluster, claim)
    pods = expand(rayjob(environment, job("reads-lustre", team=environment.team)))
    for pod in pods:
        environment.cluster.create(pod, is_dry_run=True)
    assert [_mounts_lustre(pod) for pod in pods] == [True, True, False]
    assert environment.cluster.warnings == []


def _mounts_lustre(pod: Manifest) -> bool:
    return any(mount["mountPath"] == "/mnt/lustre" for mount in pod["spec"]["containers"][0]["volumeMounts"])

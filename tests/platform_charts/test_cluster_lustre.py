"""FSx for Lustre in a cluster: its volumes on paper, and a job that mounts it on a real API server."""

from __future__ import annotations

import json

import pytest

from infra.kube.errors import ApiError
from infra.lifecycle.sandbox.recorded import recorded
from infra.spec.manifest import Manifest
from infra.spec.release import load_release
from platform_charts.objects.phases import platform_objects
from tests.engines.kubernetes_jobs import job, rayjob
from tests.engines.kubernetes_platform import Environment, drifts, with_lustre
from tests.infra.aws.graphs import ENVIRONMENTS, graph, settings_of
from tests.kuberay.expand import expand

VOLUME = "kubernetes:core/v1:PersistentVolume"


def storage_of(environment: str) -> dict[tuple[str, str], Manifest]:
    """Volumes, claims and classes of an environment, by kind and name."""
    settings = settings_of(environment)
    phases = platform_objects(settings, load_release(), recorded(settings).facts)
    objects = [one for phase in phases.values() for one in phase]
    kinds = {"PersistentVolume", "PersistentVolumeClaim", "StorageClass"}
    return {(one["kind"], one["metadata"]["name"]): one for one in objects if one["kind"] in kinds}


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


def test_nobody_has_a_writable_volume_of_it() -> None:
    volumes = [one for (kind, _), one in storage_of("lustre").items() if kind == "PersistentVolume"]
    lustre = [one for one in volumes if one["spec"]["csi"]["driver"] == "fsx.csi.aws.com"]
    assert [one["metadata"]["name"] for one in lustre] == ["lustre-research"]
    assert all("ro" in one["spec"]["mountOptions"] for one in lustre)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_an_environment_without_it_has_none_of_its_objects(environment: str) -> None:
    assert [name for name in storage_of(environment) if "lustre" in name[1]] == []


def test_the_program_registers_the_volume_with_the_file_systems_outputs() -> None:
    recording = graph("lustre")
    volume = recording.find(VOLUME, "persistentvolume-lustre-research")
    assert volume.properties["spec"]["csi"]["volumeHandle"] == recording.outputs["storage"]["lustre_id"]
    assert "<<" not in json.dumps(volume.properties["spec"]["csi"])
    (file_system,) = recording.of_type("aws:fsx/lustreFileSystem:LustreFileSystem")
    assert file_system.urn in volume.property_dependencies["spec"]


@with_lustre
def test_the_claim_of_the_team_is_bound(environment: Environment) -> None:
    (claim,) = [one for one in environment.manifests if _is_named(one, "PersistentVolumeClaim", "lustre")]
    environment.cluster.await_(claim, lambda found: found["status"]["phase"] == "Bound", what="bound")
    assert not drifts(environment.cluster, claim)


@with_lustre
def test_a_claim_beyond_those_of_the_platform_is_refused(environment: Environment) -> None:
    (claim,) = [one for one in environment.manifests if _is_named(one, "PersistentVolumeClaim", "lustre")]
    more = {**claim, "metadata": {"name": "more", "namespace": environment.team}}
    with pytest.raises(ApiError, match="exceeded quota: team, requested: persistentvolumeclaims=1"):
        environment.cluster.create(more)


@with_lustre
def test_the_pods_that_mount_it_pass_pod_security(environment: Environment) -> None:
    manifest = rayjob(environment, job("reads-lustre", team=environment.team))
    with environment.cluster.applied(manifest):
        assert not drifts(environment.cluster, manifest)
    head, worker, submitter = expand(manifest)
    for pod in (head, worker, submitter):
        environment.cluster.create(pod, is_dry_run=True)
    assert [_mounts_lustre(pod) for pod in (head, worker, submitter)] == [True, True, False]
    assert environment.cluster.warnings == []


@with_lustre
def test_a_member_cannot_make_a_writable_volume_of_it(environment: Environment) -> None:
    """Volumes belong to the cluster; a member may create none."""
    (volume,) = [one for one in environment.manifests if _is_named(one, "PersistentVolume", "lustre-research")]
    theirs = {**volume, "metadata": {"name": "theirs"}, "spec": {**volume["spec"], "mountOptions": ["flock"]}}
    with pytest.raises(ApiError, match=r"cannot (create|patch) resource"):
        environment.member(environment.team).apply(theirs)


def _is_named(manifest: Manifest, kind: str, name: str) -> bool:
    return (manifest["kind"], manifest["metadata"]["name"]) == (kind, name)


def _mounts_lustre(pod: Manifest) -> bool:
    return any(mount["mountPath"] == "/mnt/lustre" for mount in pod["spec"]["containers"][0]["volumeMounts"])

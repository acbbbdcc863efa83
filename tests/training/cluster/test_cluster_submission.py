"""Submitting to a real API server: all objects of a job or none, and each name once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from tests.training.cluster.team_cluster import TeamCluster, wait_until
from training.cluster import control
from training.cluster.submission import submit
from training.environment import run_arguments, submitted


def settings_of(team_cluster: TeamCluster, name: str) -> Manifest | None:
    """The job's ConfigMap."""
    return team_cluster.api.read(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{name}-settings", "namespace": team_cluster.namespace},
        }
    )


def test_a_job_owns_its_settings(team_cluster: TeamCluster, api: KubernetesApi, name: str) -> None:
    made = submit(api, team_cluster.objects(name), env="dev")
    settings = settings_of(team_cluster, name)
    assert settings is not None
    assert [owner["uid"] for owner in settings["metadata"]["ownerReferences"]] == [made["metadata"]["uid"]]


def test_the_driver_of_a_job_knows_when_it_was_submitted(
    team_cluster: TeamCluster, api: KubernetesApi, name: str
) -> None:
    before = time.time()
    made = submit(api, team_cluster.objects(name), env="dev")
    (container,) = made["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    assert before - 0.001 <= submitted(variables) <= time.time()
    assert run_arguments(variables) == f"ENV=dev JOB={name} TEAM=research"


def test_a_name_that_is_taken_is_refused_with_a_remedy(
    team_cluster: TeamCluster, api: KubernetesApi, name: str
) -> None:
    submit(api, team_cluster.objects(name), env="dev")
    with pytest.raises(RefusedError, match=rf"job {name} exists .*\n.*make logs ENV=dev JOB={name}"):
        submit(api, team_cluster.objects(name), env="dev")


class BeforeTheOther(KubernetesApi):
    """The API server as of before the other submission."""

    def read(self, manifest: Mapping[str, Any]) -> Manifest | None:
        """No object exists yet."""
        del manifest
        return None


def test_of_two_concurrent_submissions_of_one_name_one_is_refused(
    team_cluster: TeamCluster, api: KubernetesApi, name: str, control_plane: ControlPlane
) -> None:
    first = submit(api, team_cluster.objects(name), env="dev")
    with pytest.raises(RefusedError, match=f"job {name} exists"):
        submit(BeforeTheOther(control_plane.client()), team_cluster.objects(name), env="dev")
    left = team_cluster.job(name)
    assert left is not None
    assert left["metadata"]["uid"] == first["metadata"]["uid"]


def test_a_job_whose_settings_are_refused_is_deleted(team_cluster: TeamCluster, api: KubernetesApi, name: str) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "maps", "namespace": team_cluster.namespace},
        "spec": {"hard": {"count/configmaps": "0"}},
    }
    with team_cluster.api.applied(quota):
        wait_until(lambda: "used" in (team_cluster.api.read(quota) or {}).get("status", {}))
        with pytest.raises(ApiError, match="exceeded quota: maps"):
            submit(api, team_cluster.objects(name), env="dev")
    wait_until(lambda: team_cluster.job(name) is None)


def test_an_exceeded_quota_of_jobs_says_how_to_delete_some(
    team_cluster: TeamCluster, api: KubernetesApi, name: str
) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "jobs", "namespace": team_cluster.namespace},
        "spec": {"hard": {"count/rayjobs.ray.io": "0"}},
    }
    with team_cluster.api.applied(quota):
        wait_until(lambda: "used" in (team_cluster.api.read(quota) or {}).get("status", {}))
        with pytest.raises(ApiError, match=r"exceeded quota: jobs, .*\n.*kubectl delete rayjob NAME"):
            submit(api, team_cluster.objects(name), env="dev")
    assert team_cluster.job(name) is None


def test_the_name_of_an_ended_job_is_refused_with_how_to_free_it(
    team_cluster: TeamCluster, api: KubernetesApi, name: str
) -> None:
    submit(api, team_cluster.objects(name), env="dev")
    team_cluster.operator_writes(name, jobDeploymentStatus="Complete", jobStatus="SUCCEEDED")
    with pytest.raises(RefusedError, match=rf"\(done\).*\n.*resume.* or free the name: kubectl .* rayjob {name}"):
        submit(api, team_cluster.objects(name), env="dev")


def test_a_user_without_permission_gets_a_remedy(
    team_cluster: TeamCluster, name: str, control_plane: ControlPlane
) -> None:
    stranger = KubernetesApi(control_plane.client("jane", ["strangers"]))
    with pytest.raises(ApiError, match=r'User "jane" cannot get resource "rayjobs" .*\n.*role of the team'):
        submit(stranger, team_cluster.objects(name), env="dev")


def test_a_missing_namespace_is_named(team_cluster: TeamCluster, api: KubernetesApi, name: str) -> None:
    found = team_cluster.objects(name)
    for one in found:
        one["metadata"]["namespace"] = "nowhere"
    with pytest.raises(ApiError, match=r'namespaces "nowhere" not found\n.*bring the stack up'):
        submit(api, found, env="dev")


def test_an_object_that_violates_the_crd_is_refused_by_field(
    team_cluster: TeamCluster, api: KubernetesApi, name: str
) -> None:
    settings, job = team_cluster.objects(name)
    job["spec"]["submissionMode"] = 7
    with pytest.raises(ApiError, match="submissionMode"):
        submit(api, (settings, job), env="dev")


def test_a_removed_job_leaves_its_name_and_its_settings_name_free(
    team_cluster: TeamCluster, api: KubernetesApi, name: str
) -> None:
    job = submit(api, team_cluster.objects(name), env="dev")
    control.remove(api, job, f"{name}-settings")
    submit(api, team_cluster.objects(name), env="dev")
    assert settings_of(team_cluster, name) is not None

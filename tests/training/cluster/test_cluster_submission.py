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
from infra.spec.manifest import Manifest, api_object
from tests.training.cluster.team_cluster import TeamCluster
from training.cluster import control
from training.cluster.submission import submit
from training.environment import run_arguments, submitted


def test_a_job_owns_its_settings_and_knows_when_it_was_submitted(team_cluster: TeamCluster, name: str) -> None:
    before = time.time()
    made = team_cluster.submit(name)
    (container,) = made["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    assert before - 0.001 <= submitted(variables) <= time.time()
    assert run_arguments(variables) == f"ENV=dev JOB={name} TEAM=research"
    settings = team_cluster.settings_of(name)
    assert settings is not None
    assert [owner["uid"] for owner in settings["metadata"]["ownerReferences"]] == [made["metadata"]["uid"]]


def test_a_name_that_is_taken_is_refused_until_its_job_is_removed(team_cluster: TeamCluster, name: str) -> None:
    job = team_cluster.submit(name)
    with pytest.raises(RefusedError, match=rf"job {name} exists .*\n.*make logs ENV=dev JOB={name} TEAM=research"):
        team_cluster.submit(name)
    team_cluster.ends(name)
    with pytest.raises(RefusedError, match=rf"\(done\).*\n.*resume.* or free the name: kubectl .* rayjob {name}"):
        team_cluster.submit(name)
    control.remove(team_cluster.api, job, f"{name}-settings")
    team_cluster.submit(name)
    assert team_cluster.settings_of(name)


class BeforeTheOther(KubernetesApi):
    """The API server as of before the other submission."""

    def read(self, manifest: Mapping[str, Any]) -> Manifest | None:
        """No object exists yet."""
        del manifest
        return None


def test_one_of_two_submissions_at_once_is_refused(
    team_cluster: TeamCluster, name: str, control_plane: ControlPlane
) -> None:
    first = team_cluster.submit(name)
    with pytest.raises(RefusedError, match=f"job {name} exists"):
        submit(BeforeTheOther(control_plane.client()), team_cluster.objects(name), env="dev")
    left = team_cluster.job(name)
    assert left is not None
    assert left["metadata"]["uid"] == first["metadata"]["uid"]


def test_a_submission_over_a_quota_leaves_no_job(team_cluster: TeamCluster, name: str) -> None:
    spec = {"hard": {"count/rayjobs.ray.io": "0"}}
    quota = api_object("v1", "ResourceQuota", "jobs", namespace=team_cluster.namespace, spec=spec)
    with team_cluster.api.applied(quota):
        team_cluster.api.await_(quota, lambda one: "used" in one.get("status", {}), what="counted")
        with pytest.raises(ApiError, match=r"exceeded quota: jobs, .*\n.*kubectl delete rayjob NAME"):
            team_cluster.submit(name)
    assert team_cluster.job(name) is None


def test_what_the_api_server_refuses_has_a_remedy(
    team_cluster: TeamCluster, name: str, control_plane: ControlPlane
) -> None:
    stranger = KubernetesApi(control_plane.client("jane", ["strangers"]))
    with pytest.raises(ApiError, match=r'User "jane" cannot get resource "rayjobs" .*\n.*role of the team'):
        submit(stranger, team_cluster.objects(name), env="dev")
    settings, job = team_cluster.objects(name)
    for one in (settings, job):
        one["metadata"]["namespace"] = "nowhere"
    with pytest.raises(ApiError, match=r'namespaces "nowhere" not found\n.*bring the stack up'):
        submit(team_cluster.api, (settings, job), env="dev")

"""Submitting to a real API server: all of a job or nothing, and a name once."""

from __future__ import annotations

import pytest

from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.manifest import Manifest
from tests.training.cluster.stage import Stage, wait_until
from training.cluster import control, places
from training.cluster.api import Api
from training.cluster.errors import ApiError, ClusterRefusedError
from training.cluster.submission import submit


def settings_of(stage: Stage, name: str) -> Manifest | None:
    """The job's ConfigMap."""
    return stage.api.read(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{name}-settings", "namespace": stage.namespace},
        }
    )


def test_a_job_owns_its_settings(on_stage: Stage, api: Api, name: str) -> None:
    made = submit(api, on_stage.objects(name), env="dev")
    settings = settings_of(on_stage, name)
    assert settings is not None
    assert [owner["uid"] for owner in settings["metadata"]["ownerReferences"]] == [made["metadata"]["uid"]]


def test_a_name_that_is_taken_is_refused_with_what_to_do(on_stage: Stage, api: Api, name: str) -> None:
    submit(api, on_stage.objects(name), env="dev")
    with pytest.raises(ClusterRefusedError, match=rf"job {name} exists .*\n.*make logs ENV=dev JOB={name}"):
        submit(api, on_stage.objects(name), env="dev")


class TwoAtOnce(Api):
    """Somebody else's view of the API server, from a moment before the name was taken."""

    def read(self, path: str) -> Manifest | None:
        """Nothing is there yet."""
        del path
        return None


def test_of_two_who_take_a_name_at_once_one_is_refused(
    on_stage: Stage, api: Api, name: str, control_plane: ControlPlane
) -> None:
    first = submit(api, on_stage.objects(name), env="dev")
    with pytest.raises(ClusterRefusedError, match=f"job {name} exists"):
        submit(TwoAtOnce(control_plane.client()), on_stage.objects(name), env="dev")
    left = on_stage.job(name)
    assert left is not None
    assert left["metadata"]["uid"] == first["metadata"]["uid"]


def test_a_job_whose_settings_are_refused_is_not_left_behind(on_stage: Stage, api: Api, name: str) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "maps", "namespace": on_stage.namespace},
        "spec": {"hard": {"count/configmaps": "0"}},
    }
    with on_stage.api.applied(quota):
        wait_until(lambda: "used" in (on_stage.api.read(quota) or {}).get("status", {}))
        with pytest.raises(ApiError, match="quota maps of the namespace is used up"):
            submit(api, on_stage.objects(name), env="dev")
    wait_until(lambda: on_stage.job(name) is None)


def test_a_namespace_that_is_full_of_jobs_says_how_they_go(on_stage: Stage, api: Api, name: str) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "jobs", "namespace": on_stage.namespace},
        "spec": {"hard": {"count/rayjobs.ray.io": "0"}},
    }
    with on_stage.api.applied(quota):
        wait_until(lambda: "used" in (on_stage.api.read(quota) or {}).get("status", {}))
        with pytest.raises(ApiError, match=r"quota jobs of the namespace is used up: .*\n.*kubectl delete rayjob NAME"):
            submit(api, on_stage.objects(name), env="dev")
    assert on_stage.job(name) is None


def test_the_name_of_a_job_that_has_ended_is_refused_with_how_it_becomes_free(
    on_stage: Stage, api: Api, name: str
) -> None:
    submit(api, on_stage.objects(name), env="dev")
    on_stage.operator_writes(name, jobDeploymentStatus="Complete", jobStatus="SUCCEEDED")
    with pytest.raises(
        ClusterRefusedError, match=rf"\(done\).*\n.*resume.* or free the name: kubectl .* rayjob {name}"
    ):
        submit(api, on_stage.objects(name), env="dev")


def test_who_may_not_submit_is_told_who_may(on_stage: Stage, name: str, control_plane: ControlPlane) -> None:
    stranger = Api(control_plane.client("jane", ["strangers"]))
    with pytest.raises(ApiError, match=r"user jane may not get rayjobs in namespace .*\n.*role of the team"):
        submit(stranger, on_stage.objects(name), env="dev")


def test_a_namespace_that_is_not_there_is_named(on_stage: Stage, api: Api, name: str) -> None:
    found = on_stage.objects(name)
    for one in found:
        one["metadata"]["namespace"] = "nowhere"
    with pytest.raises(ApiError, match="namespace nowhere does not exist"):
        submit(api, found, env="dev")


def test_an_object_the_definitions_refuse_is_refused_by_field(on_stage: Stage, api: Api, name: str) -> None:
    settings, job = on_stage.objects(name)
    job["spec"]["submissionMode"] = 7
    with pytest.raises(ApiError, match="submissionMode"):
        submit(api, (settings, job), env="dev")


def test_a_removed_job_leaves_its_name_and_its_settings_name_free(on_stage: Stage, api: Api, name: str) -> None:
    job = submit(api, on_stage.objects(name), env="dev")
    control.remove(api, job, f"{name}-settings")
    submit(api, on_stage.objects(name), env="dev")
    assert api.read(places.config_map(on_stage.namespace, f"{name}-settings")) is not None

"""RayJobs against KubeRay's CRDs and their CEL rules, on a real API server."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable

import pytest

from infra.kube.errors import ApiError
from infra.spec.errors import SettingsError
from infra.spec.manifest import Manifest
from platform_charts.jobs.rayjob import render_job
from tests.engines.kubernetes_jobs import CONFIGS, fits, job, rayjob, shipped
from tests.engines.kubernetes_platform import Environment, drifts, in_dev, in_prod
from training.cluster.submission import submit

_MANY = 200


def test_the_job_of_every_shipped_config_applies_without_a_warning_and_without_drift(environment: Environment) -> None:
    requests = [shipped(config, team=environment.team) for config in CONFIGS]
    rendered = [render_job(request, environment.target) for request in requests if fits(request, environment)]
    assert rendered
    for manifests in rendered:
        with environment.cluster.applied(*manifests):
            assert [one["kind"] for one in manifests if drifts(environment.cluster, one)] == []


@in_prod
def test_every_shipped_config_fits_prod(environment: Environment) -> None:
    assert all(render_job(shipped(config, team=environment.team), environment.target) for config in CONFIGS)


def _unknown_field(spec: Manifest) -> None:
    spec["shutdownAfterJobFinish"] = True


def _wrong_type(spec: Manifest) -> None:
    spec["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] = "two"


def _unknown_manager(spec: Manifest) -> None:
    spec["managedBy"] = "nobody"


def _two_ways_of_deletion(spec: Manifest) -> None:
    rule = {"condition": {"jobStatus": "SUCCEEDED", "ttlSeconds": 1}, "policy": "DeleteCluster"}
    policy = {"policy": "DeleteCluster"}
    spec["deletionStrategy"] = {"onSuccess": policy, "onFailure": policy, "deletionRules": [rule]}


@in_dev
@pytest.mark.parametrize(
    ("violate", "message"),
    [
        (_unknown_field, "field not declared in schema"),
        (_wrong_type, "replicas"),
        (_unknown_manager, "managedBy field value must be"),
        (_two_ways_of_deletion, "cannot be used together"),
    ],
)
def test_a_job_that_violates_the_crd_is_refused(
    violate: Callable[[Manifest], None], message: str, environment: Environment
) -> None:
    wrong = copy.deepcopy(rayjob(environment, job("wrong", team=environment.team)))
    violate(wrong["spec"])
    with pytest.raises(ApiError, match=message):
        environment.cluster.apply(wrong)


@in_dev
def test_managed_by_is_immutable(environment: Environment) -> None:
    manifest = rayjob(environment, job("managed", team=environment.team))
    manifest["spec"]["managedBy"] = "ray.io/kuberay-operator"
    with environment.cluster.applied(manifest):
        manifest["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
        with pytest.raises(ApiError, match="managedBy field is immutable"):
            environment.cluster.apply(manifest)


@in_dev
@pytest.mark.parametrize("name", ["a" * 64, "Upper", "-dash", "dot.ted"])
def test_an_invalid_name_is_refused_before_submission(name: str, environment: Environment) -> None:
    with pytest.raises(SettingsError, match="invalid name="):
        job(name, team=environment.team)
    pod = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": environment.team}}
    with pytest.raises(ApiError):
        environment.cluster.create({**pod, "spec": {"ports": [{"port": 1}]}})


@pytest.mark.long
@in_prod
def test_two_hundred_jobs_are_rendered_and_submitted(
    environment: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    target, member = environment.target, environment.member(environment.team)
    names = [f"many-{number}" for number in range(_MANY)]
    started = time.perf_counter()
    jobs = [render_job(job(name, team=environment.team, workers=16), target) for name in names]
    rendered = time.perf_counter()
    for manifests in jobs:
        submit(member, manifests, env="prod")
    submitted = time.perf_counter()
    found = environment.cluster.items("ray.io/v1", "RayJob", namespace=environment.team)
    assert {one["metadata"]["name"] for one in found} >= set(names)
    with capsys.disabled():
        render_ms, submit_ms = (1000 * span / _MANY for span in (rendered - started, submitted - rendered))
        print(f"\n{_MANY} RayJobs: {render_ms:.1f} ms each to render, {submit_ms:.1f} ms to submit")
    for _, one in jobs:
        environment.cluster.delete(one)

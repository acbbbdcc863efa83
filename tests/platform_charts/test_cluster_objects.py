"""The platform's objects of every environment on a real API server."""

from __future__ import annotations

import pytest

from infra.spec.cluster_names import GPU_NAMESPACE
from infra.spec.manifest import Manifest, api_object
from infra.spec.node_labels import GPU_TAINT, GROUP_LABEL, START_UP_TAINT
from infra.spec.release import load_release
from infra.spec.settings.reaper import ReaperSettings
from platform_charts.jobs.rayjob import render_job
from platform_charts.objects.image_pull import IMAGE_PULL
from platform_charts.objects.phases import platform_objects
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_jobs import CONFIGS, created, fits, shipped
from tests.engines.kubernetes_platform import Environment, drifts, in_dev, in_prod
from tests.waiting import wait_until


@pytest.mark.extended
def test_every_object_applies_without_a_warning_and_applying_it_again_changes_nothing(environment: Environment) -> None:
    cluster, manifests = environment.cluster, environment.manifests
    assert all(cluster.read(manifest) is not None for manifest in manifests)
    drifted = [f"{one['kind']} {one['metadata']['name']}" for one in manifests if drifts(cluster, one)]
    assert drifted == []
    assert cluster.warnings == []


def test_the_volume_claims_of_every_team_are_bound(environment: Environment) -> None:
    claims = [manifest for manifest in environment.manifests if manifest["kind"] == "PersistentVolumeClaim"]
    teams = {team.name for team in environment.settings.teams}
    assert {claim["metadata"]["namespace"] for claim in claims} >= teams
    for claim in claims:
        environment.cluster.await_(claim, lambda found: found["status"]["phase"] == "Bound", what="bound")


def test_the_api_server_keeps_every_alert_as_it_is(environment: Environment) -> None:
    """The schema of the Prometheus Operator drops fields that it does not know."""
    (rules,) = [manifest for manifest in environment.manifests if manifest["kind"] == "PrometheusRule"]
    found = environment.cluster.read(rules)
    assert found is not None
    assert found["spec"]["groups"] == rules["spec"]["groups"]


@pytest.mark.extended
@in_dev
def test_its_objects_are_accepted_without_drift_and_without_warnings_of_pod_security(environment: Environment) -> None:
    settings = environment.settings.model_copy(update={"reaper": ReaperSettings()})
    phases = platform_objects(settings, load_release(), environment.stack.facts)
    found = [
        one
        for phase in phases.values()
        for one in phase
        if "reaper" in {one["metadata"]["name"], one["metadata"].get("namespace")}
    ]
    assert {"Namespace", "ServiceAccount", "CronJob", "NetworkPolicy"} == {one["kind"] for one in found}
    with environment.cluster.applied(*found):
        assert [one["metadata"]["name"] for one in found if drifts(environment.cluster, one)] == []
        assert environment.cluster.warnings == []


NEW_NODE = "new-gpu-node"


def nodes_with_the_image(cluster: Cluster) -> set[str]:
    """Names of the nodes that pods of the DaemonSet are assigned to."""
    pods = cluster.items("v1", "Pod", namespace=GPU_NAMESPACE)
    ours = [one for one in pods if one["metadata"]["labels"].get("app.kubernetes.io/name") == IMAGE_PULL]
    return {one["spec"]["nodeName"] for one in ours if "nodeName" in one["spec"]}


def new_node(group: str) -> Manifest:
    """A node as it registers: with the start-up taint, and without devices."""
    taints = [taint.model_dump() for taint in (GPU_TAINT, START_UP_TAINT)]
    resources = {"cpu": "4", "memory": "16Gi", "pods": "20"}
    labels, status = {GROUP_LABEL: group, "kubernetes.io/hostname": NEW_NODE}, {"capacity": resources}
    node = api_object("v1", "Node", NEW_NODE, labels=labels, spec={"taints": taints})
    return {**node, "status": {**status, "allocatable": resources}}


@in_dev
def test_gpu_nodes_and_no_others_get_the_image_and_a_new_one_before_the_gate_opens(environment: Environment) -> None:
    groups = {group.name for group in environment.settings.gpu_groups}
    nodes = environment.cluster.items("v1", "Node")
    expected = {one["metadata"]["name"] for one in nodes if one["metadata"]["labels"].get(GROUP_LABEL) in groups}
    assert expected
    wait_until(lambda: nodes_with_the_image(environment.cluster) == expected)
    with created(environment.cluster, [new_node(environment.settings.gpu_groups[0].name)]):
        wait_until(lambda: NEW_NODE in nodes_with_the_image(environment.cluster))


@pytest.mark.extended
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

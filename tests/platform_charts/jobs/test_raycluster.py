"""A team's long-lived cluster."""

from __future__ import annotations

from platform_charts.jobs.raycluster import render_cluster
from tests.kuberay.expand import expand
from tests.platform_charts.jobs.restricted import violations
from tests.platform_charts.jobs.targets import cluster, target_of

[CLUSTER] = render_cluster(cluster(min_workers=1, idle_minutes=15), target_of("prod"))


def test_every_pod_of_a_cluster_passes_restricted_the_autoscaler_too() -> None:
    pods = expand(CLUSTER)
    assert "autoscaler" in {container["name"] for container in pods[0]["spec"]["containers"]}
    assert [violation for pod in pods for violation in violations(pod)] == []


def test_the_autoscaler_is_version_2_and_has_the_requested_bounds() -> None:
    [group] = CLUSTER["spec"]["workerGroupSpecs"]
    assert CLUSTER["spec"]["autoscalerOptions"]["version"] == "v2"
    assert CLUSTER["spec"]["autoscalerOptions"]["idleTimeoutSeconds"] == 900
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (1, 1, 8)


def test_a_cluster_that_scales_has_no_queue() -> None:
    assert not [label for label in CLUSTER["metadata"]["labels"] if label.startswith("kueue.x-k8s.io/")]


def test_only_the_head_may_change_the_cluster() -> None:
    head, worker = expand(CLUSTER)
    assert head["spec"]["serviceAccountName"] == "notebook"
    assert worker["spec"]["serviceAccountName"] == "trainer"
    assert worker["spec"]["automountServiceAccountToken"] is False

"""Workloads are deleted while their operators live: with the real KubeRay and Kueue, and without them."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from infra.kube.errors import ApiError
from infra.lifecycle.teardown.workloads import (
    check_served,
    check_unused,
    delete_workloads,
    find_workloads,
    uses_of_others,
)
from infra.spec.cluster_names import KUEUE_API
from infra.spec.errors import RefusedError
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, api_object, labels
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_jobs import job
from tests.engines.kubernetes_operators import Operated

FINALIZER = "ray.io/rayjob-finalizer"


@pytest.mark.timeout(300)
def test_running_and_queued_jobs_are_gone_with_all_that_belongs_to_them(queued: Operated) -> None:
    running = queued.submit(job("running", team="research", group="a10g", workers=8))
    queued.await_state(running, lambda state: state.stage in {"starting", "running"}, what="admitted")
    waiting = queued.submit(job("waiting", team="research", group="a10g", workers=8))
    queued.await_state(waiting, lambda state: state.stage == "queued", what="queued")
    queued.cluster.await_(running, lambda one: FINALIZER in one["metadata"].get("finalizers", ()), what="guarded")
    queued.cluster.create(_schedule())
    said: list[str] = []
    delete_workloads(queued.cluster, say=said.append, seconds=120)
    assert find_workloads(queued.cluster) == []
    assert queued.cluster.items(KUEUE_API, "Workload") == []
    assert "RayJob research/running" in said[0]
    assert "RayJob research/waiting" in said[0]
    assert "CronJob research/nightly" in said[0]


def _schedule() -> Manifest:
    """A schedule, which would submit jobs while they are deleted."""
    container = {"name": "submit", "image": "mlflow", "securityContext": dict(RESTRICTED_CONTAINER)}
    pod = {"restartPolicy": "Never", "securityContext": dict(RESTRICTED_POD), "containers": [container]}
    spec = {"schedule": "@yearly", "jobTemplate": {"spec": {"template": {"spec": pod}}}}
    schedule = {"ray-train-platform/schedule": "nightly"}
    return api_object("batch/v1", "CronJob", "nightly", namespace="research", labels=schedule, spec=spec)


def test_a_queue_and_a_flavor_of_others_that_use_ours_are_named_before_anything_is_deleted(
    custom_resources: Cluster,
) -> None:
    ours = labels("queueing", version="1")
    topology = api_object(
        KUEUE_API, "Topology", "ours", labels=ours, spec={"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}
    )
    flavor = api_object(KUEUE_API, "ResourceFlavor", "ours", labels=ours, spec={})
    resources = [{"name": "cpu", "nominalQuota": 1}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "ours", "resources": resources}]}]
    queue = api_object(KUEUE_API, "ClusterQueue", "ours", labels=ours, spec={"resourceGroups": groups})
    theirs = api_object(KUEUE_API, "ClusterQueue", "theirs", spec={"resourceGroups": groups})
    spec = {"nodeLabels": {"theirs": "yes"}, "topologyName": "ours"}
    their_flavor = api_object(KUEUE_API, "ResourceFlavor", "theirs", spec=spec)
    with custom_resources.applied(topology, flavor, queue):
        check_unused(custom_resources)
        with custom_resources.applied(theirs, their_flavor):
            assert list(uses_of_others(custom_resources)) == [
                "ClusterQueue theirs uses ResourceFlavor ours",
                "ResourceFlavor theirs uses Topology ours",
            ]
            with pytest.raises(RefusedError, match="ClusterQueue theirs"):
                check_unused(custom_resources)


def test_without_operators_the_objects_are_named_with_their_finalizers(custom_resources: Cluster) -> None:
    stuck = api_object("ray.io/v1", "RayJob", "stuck", namespace="default", spec={})
    stuck["metadata"]["finalizers"] = [FINALIZER]
    custom_resources.create(stuck)
    try:
        with pytest.raises(RefusedError) as caught:
            delete_workloads(custom_resources, say=lambda _: None, seconds=0.1)
    finally:
        custom_resources.patch(stuck, {"metadata": {"finalizers": None}})
    assert f"\n  RayJob default/stuck: finalizers {FINALIZER}" in str(caught.value)
    assert "kubectl -n kuberay-system get pods" in caught.value.remedy
    assert "kubectl -n default patch rayjob.ray.io stuck --type merge" in caught.value.remedy
    assert custom_resources.read(stuck) is None


def test_an_api_that_nothing_serves_is_refused_because_it_keeps_namespaces(kubernetes_api: Cluster) -> None:
    check_served(kubernetes_api)
    spec = {
        "group": "unserved.example.com",
        "version": "v1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"name": "gone", "namespace": "default"},
    }
    unserved = api_object("apiregistration.k8s.io/v1", "APIService", "v1.unserved.example.com", spec=spec)
    with kubernetes_api.applied(unserved):
        kubernetes_api.await_(unserved, lambda one: "conditions" in one.get("status", {}), what="checked")
        with pytest.raises(RefusedError) as caught:
            check_served(kubernetes_api)
    assert '\n  v1.unserved.example.com: service/gone in "default" is not present' in str(caught.value)
    assert caught.value.remedy.endswith("kubectl delete apiservice v1.unserved.example.com")
    check_served(kubernetes_api)


def test_kinds_that_went_with_a_chart_have_none(kubernetes_api: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an interrupted destroy, when the cached discovery still lists them."""
    monkeypatch.setattr(kubernetes_api, "items", Mock(side_effect=ApiError("page not found", code=404)))
    assert find_workloads(kubernetes_api) == []
    monkeypatch.setattr(kubernetes_api, "items", Mock(side_effect=ApiError("page not found", code=403)))
    with pytest.raises(ApiError):
        find_workloads(kubernetes_api)

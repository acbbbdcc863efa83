"""A job trains through an upgrade from KubeRay's minor before, on a real API server with the real operators and scheduler."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

import pytest

from infra.kube.definitions import apply_crds
from infra.lifecycle.preflight.crd_fields import lost_fields
from infra.lifecycle.sandbox.modules import KUBERAY
from infra.spec.cluster_names import KUEUE_API
from infra.spec.errors import RefusedError
from infra.spec.manifest import MANAGED_BY, PART_OF, Manifest, api_object
from infra.spec.node_labels import GPU_RESOURCE
from infra.spec.release import load_release
from platform_charts.charts.crds import check_crd_upgrades
from platform_charts.jobs.scheduling import JOB_LABEL
from tests.distribution import OPERATORS
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_history import watching
from tests.engines.kubernetes_jobs import node_type
from tests.engines.kubernetes_stack import CHART
from tests.platform_charts.undisturbed import KINDS, disturbances
from tests.platform_charts.upgraded_cluster import LEFT_TEAM, OLD_VERSION, Upgraded, upgraded_cluster
from tests.training.cluster.team_cluster import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.xdist_group(OPERATORS)]

_VERSION = "app.kubernetes.io/version"


@pytest.fixture(scope="module")
def upgraded() -> Iterator[Upgraded]:
    """The cluster after its upgrade."""
    with upgraded_cluster() as found:
        yield found


@pytest.fixture
def narrower(upgraded: Upgraded) -> Manifest:
    """The CRD of RayClusters without a field that jobs set."""
    (found,) = [copy.deepcopy(one) for one in upgraded.new.crds if one["metadata"]["name"] == "rayclusters.ray.io"]
    (stored,) = [version for version in found["spec"]["versions"] if version["storage"]]
    del stored["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["authOptions"]
    return found


def test_operators_and_their_crds_change_before_the_queues(upgraded: Upgraded) -> None:
    steps = {step.name: step for step in upgraded.plan.steps}
    assert list(steps) == ["foundation", "operators", "platform"]
    assert upgraded.stack.ran[1:] == [step.excluded for step in steps.values()]
    changed = {one.name for one in steps["operators"].changes if one.type == CHART}
    assert {"kuberay-operator", "kueue"} <= changed
    assert {one.effect for one in steps["platform"].changes if one.type.endswith(":ClusterQueue")} == {
        "updated",
        "deleted",
    }


def test_nothing_happens_to_the_job_that_runs(upgraded: Upgraded) -> None:
    assert disturbances(upgraded.history) == []
    kinds = [life.kind for life in upgraded.history.lives.values()]
    assert {kind: kinds.count(kind) for kind in KINDS} == {"pods": 4, "rayclusters": 1, "rayjobs": 1, "workloads": 1}


def test_a_job_of_the_new_release_runs_beside_it(upgraded: Upgraded) -> None:
    assert upgraded.stages == ("running", "running")
    old, new = (upgraded.operated.pods(one) for one in (upgraded.job, upgraded.newer))
    assert {one["metadata"]["labels"][_VERSION] for one in old} == {OLD_VERSION}
    assert {one["metadata"]["labels"][_VERSION] for one in new} == {load_release().platform}
    assert _operator_of(new) == f"v{KUBERAY.version}" != _operator_of(old)


def test_every_object_is_of_the_new_release_and_what_it_lacks_is_gone(upgraded: Upgraded) -> None:
    kinds = {
        (one["apiVersion"], one["kind"]) for one in (*upgraded.old.objects.values(), *upgraded.new.objects.values())
    }
    ours = f"{PART_OF}={MANAGED_BY},!{JOB_LABEL}"
    live = {_key(one): one for kind in kinds for one in upgraded.operated.cluster.items(*kind, labels=ours)}
    before, after = (
        {_key(one) for one in stack.objects.values() if PART_OF in one["metadata"].get("labels", {})}
        for stack in (upgraded.old, upgraded.new)
    )
    assert f"Namespace /{LEFT_TEAM}" in before - after
    assert live.keys() == after
    assert {one["metadata"]["labels"][_VERSION] for one in live.values()} == {load_release().platform}


def test_quotas_are_those_of_the_new_release(upgraded: Upgraded) -> None:
    queue = upgraded.operated.cluster.read(api_object(KUEUE_API, "ClusterQueue", "research"))
    assert queue is not None
    quotas = {
        flavor["name"]: resource["nominalQuota"]
        for group in queue["spec"]["resourceGroups"]
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        if resource["name"] == GPU_RESOURCE
    }
    assert quotas["t4"] == "8"


def test_the_new_operator_ends_the_old_job(upgraded: Upgraded) -> None:
    operated = upgraded.operated
    operated.end(upgraded.job, "SUCCEEDED")
    operated.await_state(upgraded.job, lambda state: state.stage == "done", what="done")


def test_the_crds_cannot_go_back(upgraded: Upgraded) -> None:
    live = [upgraded.operated.cluster.read(crd) for crd in upgraded.new.crds]
    with pytest.raises(RefusedError, match="writes would lose the newer version's fields"):
        check_crd_upgrades([one for one in live if one is not None], upgraded.old.crds)


def test_a_crd_without_a_field_of_a_running_job_is_refused(upgraded: Upgraded, narrower: Manifest) -> None:
    cluster = upgraded.operated.cluster
    live = cluster.items("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    assert list(lost_fields(cluster, live, upgraded.new.crds)) == []
    (lost,) = lost_fields(cluster, live, [narrower])
    assert (lost.crd, lost.path) == ("rayclusters.ray.io", "spec.authOptions")
    assert [one for one in lost.objects if one.startswith("platform/newer-")] != []


def test_such_a_crd_would_be_noticed(upgraded: Upgraded, narrower: Manifest) -> None:
    cluster = upgraded.operated.cluster
    try:
        with watching(cluster, KINDS, namespace="platform") as history:
            apply_crds(cluster, [narrower])
            wait_until(lambda: not any("authOptions" in one["spec"] for one in _clusters(cluster)))
        assert [line for line in disturbances(history) if line.endswith(": its spec changed")] != []
    finally:
        apply_crds(cluster, upgraded.new.crds)


def test_the_loss_of_one_pod_is_noticed(upgraded: Upgraded) -> None:
    operated = upgraded.operated
    (worker,) = [one for one in operated.pods(upgraded.newer) if node_type(one) == "worker"]
    with watching(operated.cluster, KINDS, namespace="platform") as history:
        operated.cluster.delete(worker)
        wait_until(lambda: len(history.lives) > len(history.initial))
    found = disturbances(history)
    assert f"pods {worker['metadata']['name']}: was deleted" in found
    assert any(line.endswith("was not there at the beginning") for line in found)


def _operator_of(pods: Iterable[Manifest]) -> str:
    """The version of KubeRay that made a job's head; empty before 1.6, which does not say."""
    (head,) = [one for one in pods if node_type(one) == "head"]
    return str(head["metadata"]["annotations"].get("ray.io/kuberay-version", ""))


def _clusters(cluster: Cluster) -> list[Manifest]:
    return cluster.items("ray.io/v1", "RayCluster", namespace="platform")


def _key(one: Manifest) -> str:
    return f"{one['kind']} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}"

"""A job trains through an upgrade from KubeRay's minor before, on a real API server with the real operators and scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from infra.lifecycle.sandbox.modules import KUBERAY
from infra.spec.manifest import MANAGED_BY, PART_OF, Manifest
from infra.spec.release import load_release
from platform_charts.jobs.scheduling import JOB_LABEL
from tests.distribution import OPERATORS
from tests.engines.kubernetes_history import watching
from tests.engines.kubernetes_jobs import node_type
from tests.engines.kubernetes_stack import CHART
from tests.platform_charts.undisturbed import KINDS, disturbances
from tests.platform_charts.upgraded_cluster import LEFT_TEAM, OLD_VERSION, Upgraded, upgraded_cluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600), pytest.mark.xdist_group(OPERATORS)]

_VERSION = "app.kubernetes.io/version"


@pytest.fixture(scope="module")
def upgraded() -> Iterator[Upgraded]:
    """The cluster after its upgrade."""
    with upgraded_cluster() as found:
        yield found


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


def test_the_new_operator_ends_the_old_job(upgraded: Upgraded) -> None:
    operated = upgraded.operated
    operated.end(upgraded.job, "SUCCEEDED")
    operated.await_state(upgraded.job, lambda state: state.stage == "done", what="done")


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


def _key(one: Manifest) -> str:
    return f"{one['kind']} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}"

"""What must be true before an upgrade, on a real API server; EKS's list of add-ons and the backups are doubles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pytest

from infra.lifecycle.upgrade import checks
from infra.lifecycle.upgrade.checks import ROLLBACK_CHECKS, Upgraded, deprecated_apis, notes, problems, running_minor
from infra.spec.cluster_names import NO_EVICTION
from infra.spec.errors import NoAnswerError, NotFoundError
from infra.spec.manifest import Manifest, api_object
from infra.spec.node_labels import GROUP_LABEL
from infra.spec.release import ReleaseManifest, load_release
from tests.engines.kubernetes import Cluster

ENDPOINTS = "v1 endpoints"
"""Deprecated since Kubernetes 1.33, with no release that removes it."""


class Eks:
    """What EKS has: add-ons, and no AMI."""

    def __init__(self, listed: Mapping[str, tuple[str, ...]]) -> None:
        self._listed = listed

    def published(self, kubernetes: str, ami_type: str, release: str) -> str:
        raise NotFoundError(f"SSM parameter {kubernetes}/{ami_type}/{release}: ParameterNotFound")

    def versions(self, name: str, kubernetes: str) -> tuple[str, ...]:
        assert kubernetes == "1.35"
        if not self._listed:
            raise NoAnswerError(f"EKS add-on {name}: access denied")
        return self._listed[name]


class Backups:
    """Backups as told."""

    def __init__(self, obstacle: str | None = None, *, running: str | None = None) -> None:
        self._obstacle = obstacle
        self._running = running

    def running(self) -> str | None:
        return self._running

    def obstacle(self) -> str | None:
        return self._obstacle

    def gaps(self) -> Iterator[str]:
        yield "the restore drill is suspended"


def case(
    api: Cluster,
    *,
    versions: tuple[str, ...] | None = None,
    backup: str | None = None,
    running: str | None = None,
    minor: str = "1.35",
    release: ReleaseManifest | None = None,
) -> Upgraded:
    release = release or load_release()
    own = release.addons["aws-ebs-csi-driver"].version
    assert own is not None
    return Upgraded(
        environment="dev",
        release=release,
        kubernetes=minor,
        api=api,
        aws=Eks({} if versions == () else {"aws-ebs-csi-driver": versions or (own,)}),
        backups=Backups(backup, running=running),
        addon_names=("aws-ebs-csi-driver",),
    )


def test_a_healthy_stack_may_be_upgraded(kubernetes_api: Cluster) -> None:
    assert problems(case(kubernetes_api)) == ()
    assert "the restore drill is suspended" in list(notes(case(kubernetes_api), groups=frozenset()))


@pytest.mark.extended
def test_an_api_in_use_is_refused_once_it_is_removed(kubernetes_api: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes_api.items("v1", "Endpoints", namespace="default")
    assert ENDPOINTS in list(map(str, deprecated_apis(kubernetes_api)))
    said = f"{ENDPOINTS} is deprecated and in use; no minor removes it yet"
    assert said in list(notes(case(kubernetes_api), groups=frozenset()))
    assert problems(case(kubernetes_api)) == ()
    metrics = kubernetes_api.read_text("/metrics").replace('removed_release=""', 'removed_release="1.35"')
    monkeypatch.setattr(kubernetes_api, "read_text", lambda _path: metrics)
    found = [str(one) for one in problems(case(kubernetes_api))]
    assert any(one.startswith(f"no removed api is in use: {ENDPOINTS} is in use, and Kubernetes 1.35") for one in found)


def test_a_budget_that_allows_no_eviction_is_named_unless_queues_are_held_for_its_jobs(kubernetes_api: Cluster) -> None:
    web, jobs = {"app": "web"}, dict(NO_EVICTION)
    objects = (_pod("web", web), _budget("strict", web), _pod("rank", jobs), _budget("jobs", jobs))
    with kubernetes_api.namespace("budgets"), kubernetes_api.applied(*objects):
        for budget in (objects[1], objects[3]):  # counted by the disruption controller
            kubernetes_api.await_(budget, lambda one: one.get("status", {}).get("expectedPods") == 1, what="counted")
        (problem,) = problems(case(kubernetes_api))
    # The pod is healthy as soon as somebody else's test of this API server has nodes.
    said = r"PodDisruptionBudget budgets/strict allows no eviction \([01] of 1 pods healthy, 1 needed\)"
    assert re.fullmatch(said, problem.message)


def test_an_add_on_that_eks_does_not_list_for_the_minor_or_cannot_tell_is_named(kubernetes_api: Cluster) -> None:
    (problem,) = problems(case(kubernetes_api, versions=("v9.0.0-eksbuild.1",)))
    assert "is not compatible with Kubernetes 1.35; EKS lists v9.0.0-eksbuild.1" in problem.message
    (problem,) = problems(case(kubernetes_api, versions=()))
    assert problem.message == "EKS add-on aws-ebs-csi-driver: access denied"


def test_neither_an_upgrade_nor_a_rollback_starts_under_a_backup(kubernetes_api: Cluster) -> None:
    under_backup = case(kubernetes_api, running="Job b1, a backup of MLflow, runs since 10:00")
    for found in (problems(under_backup), problems(under_backup, ROLLBACK_CHECKS)):
        (problem,) = found
        assert problem.message == "Job b1, a backup of MLflow, runs since 10:00"
        assert problem.remedy == "wait for its end: `kubectl -n mlflow get jobs --watch`"


def test_a_stack_without_a_restored_backup_is_refused_but_a_step_can_be_taken_back(kubernetes_api: Cluster) -> None:
    without = case(kubernetes_api, backup="the newest backup is 9 days old")
    (problem,) = problems(without)
    assert problem.message == "the newest backup is 9 days old"
    assert "make restore-drill ENV=dev" in problem.remedy
    assert problems(without, ROLLBACK_CHECKS) == ()


def test_a_node_image_that_aws_does_not_publish_is_named(kubernetes_api: Cluster) -> None:
    release = load_release()
    pins = {**release.node_image.releases, "AL2023_x86_64_NVIDIA": "1.35.4-20261101"}
    pinned = release.model_copy(update={"node_image": release.node_image.model_copy(update={"releases": pins})})
    (problem,) = problems(case(kubernetes_api, release=pinned))
    assert problem.message.startswith("AWS publishes no AMI AL2023_x86_64_NVIDIA 1.35.4-20261101 in this region: SSM")


def test_nodes_that_the_control_plane_would_leave_behind_are_named(kubernetes_api: Cluster) -> None:
    node = api_object("v1", "Node", "old", labels={GROUP_LABEL: "block"})
    with kubernetes_api.applied(node):
        kubernetes_api.update_status(node, {"nodeInfo": _node_info("v1.32.9-eks-113cf36")})
        assert list(checks.nodes_are_not_too_old_for_the_minor(case(kubernetes_api))) == []
        ((message, _),) = checks.nodes_are_not_too_old_for_the_minor(case(kubernetes_api, minor="1.36"))
    assert message == "1 nodes of block run Kubernetes 1.32, too old for a control plane of 1.36: old"


def test_the_running_minor_is_the_api_servers(kubernetes_api: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert running_minor(kubernetes_api) == "1.35"
    monkeypatch.setattr(kubernetes_api, "read_raw", lambda _path: {"major": "1", "minor": "36+"})
    assert running_minor(kubernetes_api) == "1.36"


def _node_info(kubelet: str) -> Mapping[str, str]:
    names = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion")
    others = ("kubeProxyVersion", "operatingSystem", "architecture")
    return {**dict.fromkeys((*names, *others), "-"), "kubeletVersion": kubelet}


def _budget(name: str, labels: Mapping[str, str]) -> Manifest:
    spec = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    return api_object("policy/v1", "PodDisruptionBudget", name, namespace="budgets", spec=spec)


def _pod(name: str, labels: Mapping[str, str]) -> Manifest:
    spec = {"containers": [{"name": "main", "image": "main"}]}
    return api_object("v1", "Pod", name, namespace="budgets", labels=labels, spec=spec)

"""The suite on the dev environment, with the real API server, admission, KubeRay and Kueue; its nodes are fake.

Tests plant defects: the suite finds them, and blames nothing else.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.kube.api import KubernetesApi
from infra.spec.cluster_names import KUEUE_API
from infra.spec.manifest import Manifest, api_object
from infra.spec.names import team_group
from infra.spec.node_labels import EFA_RESOURCE, GPU_RESOURCE, GROUP_LABEL
from infra.spec.release import load_release
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_jobs import job as sample
from tests.engines.kubernetes_jobs import rayjob
from tests.engines.kubernetes_operators import Operated
from tests.engines.prometheus import Prometheus
from tests.training.cluster.commands import options_on
from tests.training.cluster.conformance.suites import Ran, prometheus_with_rules, receiver, run_suite, suite_jobs
from tests.waiting import wait_until
from training.cluster.conformance import suite
from training.cluster.conformance.catalogue import CHECKS
from training.cluster.conformance.judges.nodes import NodeFacts
from training.cluster.conformance.probes.nodes import DRIVER_LABEL, node_facts
from training.cluster.conformance.probes.policies import answer_to, lingering_job
from training.cluster.conformance.probes.prometheus import Prometheus as Server
from training.errors import ExitStatus

pytestmark = pytest.mark.monitoring

NEEDS_PODS = {one.name for one in CHECKS if one.needs_job} - {"queue.gang"}
FROM_OUTSIDE = tuple(word for one in CHECKS if not one.needs_job for word in ("--only", one.name))
RBAC = "rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus with the release's rules, which sends its alerts."""
    folder = tmp_path_factory.mktemp("prometheus")
    with receiver() as address, prometheus_with_rules(folder, alertmanager=address) as server:
        wait_until(lambda: bool(Server(server.url).alerting().sent))
        yield server


@pytest.fixture
def healthy(queued: Operated) -> Iterator[Operated]:
    """The cluster, whose GPU nodes say that they have the release's driver."""
    branch = load_release().node_image.nvidia_driver
    gpu_nodes = [one for one in queued.cluster.items("v1", "Node") if GPU_RESOURCE in one["status"]["allocatable"]]
    for node in gpu_nodes:
        queued.cluster.patch(node, {"metadata": {"labels": {DRIVER_LABEL: branch}}})
    yield queued
    for node in gpu_nodes:
        queued.cluster.patch(node, {"metadata": {"labels": {DRIVER_LABEL: None}}})


@pytest.fixture
def run(
    healthy: Operated, prometheus: Prometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    monkeypatch.chdir(tmp_path)
    options = [*options_on(healthy, tmp_path), "--prometheus", prometheus.url]
    return lambda *words: run_suite(*options, *words, folder=tmp_path)


def test_a_healthy_cluster_fails_no_check_and_skips_what_needs_pods_with_the_reason(
    run: Callable[..., Ran], healthy: Operated, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run()
    assert ran.failed() == {}
    assert ran.status == ExitStatus.DONE
    verdicts = ran.verdicts()
    assert list(verdicts) == [one.name for one in CHECKS]
    assert {name for name, verdict in verdicts.items() if verdict == "skipped"} == NEEDS_PODS
    assert {ran.found(name) for name in NEEDS_PODS} == {
        "the nodes are fake: the queue admitted the job, and its pods do not run"
    }
    assert "fake" in ran.record["fakes"]
    assert suite_jobs(healthy.cluster) == [], "the suite's job is deleted"
    said = capsys.readouterr().out
    assert "queue.gang          head 1 of 1, workers 2 of 2" in said
    assert f"conformance of dev: {ran.record['title']}, in " in said


def test_nodes_of_a_group_at_zero_are_looked_at_after_the_job_that_brings_them(
    run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the first look there is no node of the job's group."""
    looks: list[KubernetesApi] = []

    def look(api: KubernetesApi) -> tuple[NodeFacts, ...]:
        looks.append(api)
        found = node_facts(api)
        return found if len(looks) > 1 else tuple(one for one in found if one.group != "a10g")

    monkeypatch.setattr(suite, "node_facts", look)
    ran = run("--only", "nodes", "--only", "queue", "--only", "tracking", "--no-skips")
    passed = dict.fromkeys(("nodes.gpus", "nodes.efa", "nodes.driver", "queue.gang"), "passed")
    assert ran.verdicts() == {**passed, "tracking.run": "failed"}
    assert ran.status == ExitStatus.FAILED
    assert ran.found("tracking.run").startswith("skipped: the nodes are fake"), "where nothing may be skipped"
    said = capsys.readouterr().out
    assert said.index("queue.gang") < said.index("nodes.gpus"), "as they were made"
    assert next(iter(ran.verdicts())) == "nodes.gpus", "as they are listed"


@contextmanager
def one_device_less(cluster: Cluster, name: str, *resources: str) -> Iterator[None]:
    """A node whose device plugins have lost a device each."""
    (node,) = [one for one in cluster.items("v1", "Node") if one["metadata"]["name"] == name]
    offered = node["status"]["allocatable"]
    fewer = {**offered, **{one: str(int(offered[one]) - 1) for one in resources}}
    cluster.update_status(node, {"allocatable": fewer})
    try:
        yield
    finally:
        cluster.update_status(node, {"allocatable": offered})


def test_defects_of_nodes_and_volumes_are_found_and_nothing_else(
    run: Callable[..., Ran], healthy: Operated, tmp_path: Path
) -> None:
    """A node that has lost devices, one with a driver of another branch, a team without a volume; nobody's node does not count."""
    healthy.cluster.patch(api_object("v1", "Node", "a10g-1"), {"metadata": {"labels": {DRIVER_LABEL: "570"}}})
    file = tmp_path / "outputs.json"
    outputs = json.loads(file.read_text())
    outputs["teams"].append({**outputs["teams"][0], "name": "newcomers", "namespace": "default"})
    file.write_text(json.dumps(outputs))
    stranger = api_object("v1", "Node", "stranger", labels={GROUP_LABEL: "nobodys"})
    with one_device_less(healthy.cluster, "a10g-0", GPU_RESOURCE, EFA_RESOURCE), healthy.cluster.applied(stranger):
        ran = run(*FROM_OUTSIDE)
    assert ran.status == ExitStatus.FAILED
    assert ran.failed() == {
        "nodes.gpus": "a10g-0 offers 3 of 4 GPUs",
        "nodes.efa": "a10g-0 offers 0 of 1 EFA interfaces",
        "nodes.driver": "a10g-1 has driver 570",
        "storage.volumes": "default/runs is bound to no volume",
    }


@contextmanager
def without(cluster: Cluster, *manifests: Manifest) -> Iterator[None]:
    cluster.delete_all(manifests)
    try:
        yield
    finally:
        cluster.apply_all(manifests)


def _of_platform(healthy: Operated, kind: str, name: str, *, namespace: str | None = None) -> Manifest:
    (found,) = [
        one
        for one in healthy.environment.manifests
        if one["kind"] == kind and one["metadata"]["name"] == name and one["metadata"].get("namespace") == namespace
    ]
    return copy.deepcopy(found)


def test_changed_policies_quotas_and_roles_are_found_and_nothing_else(
    run: Callable[..., Ran], healthy: Operated
) -> None:
    cluster, key = healthy.cluster, "pod-security.kubernetes.io/enforce"
    binding = _of_platform(healthy, "ValidatingAdmissionPolicyBinding", "ray-train-platform-team-jobs")
    quota = _of_platform(healthy, "ResourceQuota", "team", namespace="research")
    namespace = _of_platform(healthy, "Namespace", "research")
    job = lingering_job(rayjob(healthy.environment, sample("lingering", team="research")))
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "submitter"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": team_group("research")}
    too_much = api_object(RBAC, "RoleBinding", "too-much", namespace="platform", roleRef=role, subjects=[subject])
    with without(cluster, binding, quota), cluster.applied(too_much):
        wait_until(lambda: not answer_to(cluster, job).refusal)
        cluster.patch(namespace, {"metadata": {"labels": {key: "privileged"}}})
        try:
            failed = run(*FROM_OUTSIDE).failed()
        finally:
            cluster.patch(namespace, {"metadata": {"labels": {key: namespace["metadata"]["labels"][key]}}})
    wait_until(lambda: bool(answer_to(cluster, job).refusal))
    cluster.await_(quota, lambda one: bool(one.get("status", {}).get("used")), what="counted")
    names = ("policy.queue", "policy.oversize", "policy.privileged", "policy.host-path", "policy.nfs")
    assert failed == {
        **dict.fromkeys(names, "admitted"),
        "policy.namespace": "members of research may submit to research, and may submit to platform",
    }


def test_a_namespace_that_admits_no_pod_is_found(run: Callable[..., Ran], healthy: Operated) -> None:
    quota = api_object("v1", "ResourceQuota", "no-pods", namespace="research", spec={"hard": {"pods": "0"}})
    with healthy.cluster.applied(quota):
        healthy.cluster.await_(quota, lambda one: bool(one.get("status", {}).get("hard")), what="counted")
        failed = run(*FROM_OUTSIDE).failed()
    assert "exceeded quota: no-pods" in failed.pop("policy.admitted")
    assert set(failed) <= {"policy.oversize"}, "which quota is named first is not defined"


def test_a_job_that_kueue_does_not_admit_fails_with_its_reason_and_is_deleted(
    run: Callable[..., Ran], healthy: Operated
) -> None:
    queues = healthy.cluster.items(KUEUE_API, "ClusterQueue")
    for one in queues:
        healthy.cluster.patch(one, {"spec": {"stopPolicy": "Hold"}})
    try:
        ran = run("--only", "queue", "--only", "training", "--admission-minutes", "0.05")
    finally:
        for one in queues:
            healthy.cluster.patch(one, {"spec": {"stopPolicy": one["spec"].get("stopPolicy", "None")}})
    assert list(ran.failed()) == ["queue.gang", "training.loss", "training.resume"]
    assert "not admitted within 0.05 minutes" in ran.found("queue.gang")
    assert "is stopped" in ran.found("queue.gang") or "is inactive" in ran.found("queue.gang")
    assert "not known: the job has no report of this part" in ran.found("training.loss")
    assert suite_jobs(healthy.cluster) == []

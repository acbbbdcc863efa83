"""No object that a team's member can create or change takes GPUs beyond the team's share.

With the real API server, KubeRay, Kueue and scheduler: in the dev environment each of the two teams owns one node of the
group a10g, with 4 GPUs. Both nodes are taken, so everything else has to be refused, or to stay in the queue without pods.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
from kubernetes.client import CustomObjectsApi

from infra.kube.errors import ApiError
from infra.lifecycle.sandbox.modules import KUEUE
from infra.spec.cluster_names import KUEUE_API
from infra.spec.manifest import Manifest, api_object
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_jobs import job, rayjob
from tests.engines.kubernetes_operators import Operated, operating, operator_program
from tests.waiting import wait_until
from training.cluster.objects import RAY_JOB

pytestmark = pytest.mark.extended

_TEAM = "research"
_GPU = "nvidia.com/gpu"
_SECONDS = 60

Change = Callable[[Manifest], None]


@pytest.fixture(scope="module")
def full() -> Iterator[Operated]:
    """A cluster of its own whose GPUs are all taken, by a job of each team."""
    operator_program(KUEUE)
    with operating() as operated:
        for team in ("platform", _TEAM):
            request = job("taken", team=team, group="a10g", workers=4)
            made = operated.submit(request)
            wait_until(partial(_has_pods, operated, made, 3), seconds=_SECONDS)
        yield operated
        operated.remove(*operated.cluster.items(*RAY_JOB))


def _has_pods(full: Operated, made: Manifest, count: int) -> bool:
    return len(full.pods(made)) == count


def _member(full: Operated) -> Cluster:
    return full.environment.member(_TEAM)


def _attempt(full: Operated, change: Change, *, name: str = "more") -> Manifest:
    """A job on four more GPUs, changed."""
    manifest = copy.deepcopy(rayjob(full.environment, job(name, team=_TEAM, group="a10g", workers=4)))
    change(manifest)
    return manifest


def _cluster_spec(manifest: Manifest) -> dict[str, Any]:
    found: dict[str, Any] = manifest["spec"]["rayClusterSpec"]
    return found


def _worker_group(manifest: Manifest) -> dict[str, Any]:
    (found,) = _cluster_spec(manifest)["workerGroupSpecs"]
    assert isinstance(found, dict)
    return found


def _templates(manifest: Manifest) -> dict[str, dict[str, Any]]:
    return {
        "head": _cluster_spec(manifest)["headGroupSpec"]["template"]["spec"],
        "worker": _worker_group(manifest)["template"]["spec"],
        "submitter": manifest["spec"]["submitterPodTemplate"]["spec"],
    }


def _without_worker_gpus(manifest: Manifest) -> None:
    for values in _templates(manifest)["worker"]["containers"][0]["resources"].values():
        del values[_GPU]


def _unchanged(_manifest: Manifest) -> None:
    """As `make train` submits it."""


def _labelled(name: str, value: str | None) -> Change:
    """Another value of one of Kueue's labels, or none."""

    def change(manifest: Manifest) -> None:
        manifest["metadata"]["labels"].pop(f"kueue.x-k8s.io/{name}", None)
        if value is not None:
            manifest["metadata"]["labels"][f"kueue.x-k8s.io/{name}"] = value

    return change


def _spec(**fields: object) -> Change:
    """Other fields of the job."""
    return lambda manifest: manifest["spec"].update(fields)


def _workers(**fields: int) -> Change:
    """Other fields of the group of workers."""
    return lambda manifest: _worker_group(manifest).update(fields)


def _pods(kind: str, **fields: object) -> Change:
    """Other fields of the pods of a kind."""
    return lambda manifest: _templates(manifest)[kind].update(fields)


def _gpus_in_an_init_container(manifest: Manifest) -> None:
    container = copy.deepcopy(_templates(manifest)["worker"]["containers"][0])
    _without_worker_gpus(manifest)
    del container["lifecycle"]
    _templates(manifest)["worker"]["initContainers"] = [{**container, "name": "first"}]


def _gpus_in_a_sidecar(manifest: Manifest) -> None:
    _gpus_in_an_init_container(manifest)
    _templates(manifest)["worker"]["initContainers"][0]["restartPolicy"] = "Always"


def _gpus_as_limits_only(manifest: Manifest) -> None:
    del _templates(manifest)["worker"]["containers"][0]["resources"]["requests"][_GPU]


def _on_gpu_nodes(manifest: Manifest, kind: str) -> dict[str, Any]:
    """The pods of a kind with the tolerations of workers, which have no GPUs."""
    _without_worker_gpus(manifest)
    pod = _templates(manifest)[kind]
    pod.update(tolerations=_templates(manifest)["worker"]["tolerations"])
    pod.pop("nodeSelector")
    return pod


def _gpus_in_the_head(manifest: Manifest) -> None:
    head = _on_gpu_nodes(manifest, "head")
    head["containers"][0]["resources"] = {"limits": {"cpu": "1", "memory": "6Gi", _GPU: "4"}}


def _gpus_in_the_submitter(manifest: Manifest) -> None:
    submitter = _on_gpu_nodes(manifest, "submitter")
    submitter["containers"][0]["resources"]["limits"][_GPU] = "4"


def _slices_of_gpus(manifest: Manifest) -> None:
    for values in _templates(manifest)["worker"]["containers"][0]["resources"].values():
        values["nvidia.com/mig-1g.5gb"] = values.pop(_GPU)


def _elastic(manifest: Manifest) -> None:
    manifest["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] = "true"


def _elastic_within_a_range(manifest: Manifest) -> None:
    _elastic(manifest)
    _worker_group(manifest).update(replicas=1, minReplicas=1, maxReplicas=4)


def _elastic_as_a_slice_of_the_job_taken(manifest: Manifest) -> None:
    _elastic(manifest)
    replaced = {"kueue.x-k8s.io/workload-slice-replacement-for": f"{_TEAM}/taken"}
    name = {"kueue.x-k8s.io/workload-slice-name": "taken"}
    manifest["metadata"]["annotations"] |= replaced | name
    _worker_group(manifest)["template"]["metadata"].setdefault("annotations", {}).update(name)


_QUEUED: tuple[Change, ...] = (
    _unchanged,
    _labelled("queue-name", None),
    _labelled("queue-name", "platform"),
    _spec(suspend=False),
    _workers(replicas=1, minReplicas=1, maxReplicas=1, numOfHosts=4),
    _gpus_in_an_init_container,
    _gpus_in_a_sidecar,
    _gpus_as_limits_only,
    _gpus_in_the_head,
    _gpus_in_the_submitter,
    _slices_of_gpus,
    _labelled("prebuilt-workload-name", "of-the-job-taken"),
    _elastic,
    _elastic_within_a_range,
    _elastic_as_a_slice_of_the_job_taken,
)


def test_no_job_without_free_quota_gets_pods(full: Operated) -> None:
    with ExitStack() as stack:
        submitted = []
        for number, change in enumerate(_QUEUED):
            attempt = _attempt(full, change, name=f"more-{number}")
            submitted.append(stack.enter_context(_submitted(full, attempt)))
        _settle(full)
        for number, made in enumerate(submitted):
            assert made["spec"]["suspend"] is True, number
            assert full.pods(made) == [], number


def _existing_cluster(manifest: Manifest) -> None:
    _gpus_in_the_submitter(manifest)
    del manifest["spec"]["rayClusterSpec"]
    manifest["spec"]["clusterSelector"] = {"ray.io/cluster": "taken"}


def _no_replicas(manifest: Manifest) -> None:
    del _worker_group(manifest)["replicas"]
    _workers(minReplicas=4, maxReplicas=4)(manifest)


_SIZE_RULE, _A_DAY = "replicas, minReplicas and maxReplicas", 86400
_NO_DELETION = {"policy": "DeleteNone"}
_REFUSED: tuple[tuple[Change, str], ...] = (
    (_existing_cluster, "clusterSelector"),
    (_workers(replicas=0, minReplicas=4, maxReplicas=4), _SIZE_RULE),
    (_no_replicas, _SIZE_RULE),
    (lambda manifest: _cluster_spec(manifest).update(enableInTreeAutoscaling=True), "enableInTreeAutoscaling"),
    (_spec(ttlSecondsAfterFinished=_A_DAY), "ttlSecondsAfterFinished"),
    (_spec(deletionStrategy={"onSuccess": _NO_DELETION, "onFailure": _NO_DELETION}), "deletionStrategy"),
    (_pods("worker", terminationGracePeriodSeconds=_A_DAY), "terminationGracePeriodSeconds"),
    (_pods("submitter", terminationGracePeriodSeconds=_A_DAY), "terminationGracePeriodSeconds"),
    (_pods("worker", nodeName="a10g-0"), "nodeName"),
)


def test_a_job_that_could_hold_gpus_that_kueue_does_not_count_is_refused(full: Operated) -> None:
    for change, rule in _REFUSED:
        with pytest.raises(ApiError, match=rule), _submitted(full, _attempt(full, change)):
            pytest.fail(f"it is accepted in spite of {rule}")


def test_neither_a_new_nor_a_queued_job_claims_an_admitted_job_as_its_owner(full: Operated) -> None:
    """Kueue does not suspend the jobs of a job that it has admitted, and members may write owner references."""
    owner = _taken(full)
    reference = {"apiVersion": "ray.io/v1", "kind": "RayJob", "controller": True}
    claim = {"ownerReferences": [reference | {key: owner["metadata"][key] for key in ("name", "uid")}]}
    attempt = _attempt(full, _unchanged)
    with _submitted(full, attempt) as made, pytest.raises(ApiError, match="ownerReferences"):
        _member(full).patch(made, {"metadata": claim})
    attempt["metadata"].update(claim)
    with pytest.raises(ApiError, match="ownerReferences"), _submitted(full, attempt):
        pytest.fail("it is accepted")


def test_the_spec_of_an_admitted_job_cannot_be_changed(full: Operated) -> None:
    for change in (_workers(replicas=2, minReplicas=2, maxReplicas=2), _gpus_in_the_submitter, _spec(suspend=True)):
        found = _taken(full)
        before = copy.deepcopy(found["spec"])
        change(found)
        with pytest.raises(ApiError, match="spec of a submitted job cannot be changed"):
            _member(full).patch(found, {"spec": found["spec"]})
        assert _taken(full)["spec"] == before


def test_the_status_of_a_job_cannot_be_written(full: Operated) -> None:
    """Kueue releases the quota of a job whose status says that it is over."""
    with pytest.raises(ApiError, match="forbidden"):
        _member(full).update_status(_taken(full), {"jobDeploymentStatus": "Complete"})


def _fewer_pods(workload: Manifest) -> Manifest:
    sets = copy.deepcopy(workload["spec"]["podSets"])
    for one in sets:
        one["template"]["spec"]["containers"][0]["resources"] = {}
    return {"spec": {"podSets": sets}}


def test_a_member_changes_nothing_of_a_workload_but_whether_it_is_active(full: Operated) -> None:
    with _submitted(full, _attempt(full, _unchanged)) as made:
        _settle(full)
        workload = full.workload(made)
        changes: tuple[Manifest, ...] = (
            _fewer_pods(workload),
            {"spec": {"queueName": "other"}},
            {"spec": {"priority": 9000}},
            {"metadata": {"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}},
            {"metadata": {"labels": {"kueue.x-k8s.io/job-uid": "other"}}},
            {"metadata": {"ownerReferences": []}},
            {"metadata": {"finalizers": []}},
        )
        for change in changes:
            with pytest.raises(ApiError, match=r"spec\.active"):
                _member(full).patch(workload, change)
        for active in (False, True):
            assert _member(full).patch(workload, {"spec": {"active": active}})["spec"]["active"] is active


def test_a_member_creates_no_other_object_that_makes_pods_quota_or_rights(full: Operated) -> None:
    others = {
        "v1": ("Pod", "ReplicationController", "PersistentVolumeClaim", "ServiceAccount"),
        "apps/v1": ("Deployment", "StatefulSet"),
        "batch/v1": ("Job",),
        "rbac.authorization.k8s.io/v1": ("RoleBinding",),
        "ray.io/v1": ("RayCluster", "RayService"),
        KUEUE_API: ("Workload", "LocalQueue"),
    }
    for version, kinds in others.items():
        for kind in kinds:
            with pytest.raises(ApiError, match="forbidden") as refusal:
                _member(full).create(api_object(version, kind, "more", namespace=_TEAM), is_dry_run=True)
            assert refusal.value.code == 403, kind


def test_the_cluster_of_a_job_that_is_deleted_alone_does_not_go_on(full: Operated) -> None:
    """Last, because it ends the team's job: `kubectl delete --cascade=orphan` releases the quota of the job."""
    name = _taken(full)["status"]["rayClusterName"]
    _orphan(full, "taken")
    cluster = api_object("ray.io/v1", "RayCluster", name, namespace=_TEAM)
    labels = f"ray.io/cluster={name}"
    try:
        wait_until(lambda: not full.cluster.items("v1", "Pod", namespace=_TEAM, labels=labels), seconds=_SECONDS)
    finally:
        full.cluster.delete(cluster)


def _orphan(full: Operated, name: str) -> None:
    """Delete a job without its dependents, as a member."""
    client = CustomObjectsApi(_member(full).client)
    client.delete_namespaced_custom_object("ray.io", "v1", _TEAM, "rayjobs", name, propagation_policy="Orphan")


def _taken(full: Operated) -> Manifest:
    found = full.cluster.read(api_object(*RAY_JOB, "taken", namespace=_TEAM))
    assert found is not None
    return found


@contextmanager
def _submitted(full: Operated, attempt: Manifest) -> Iterator[Manifest]:
    """A job that a member submitted, deleted afterwards."""
    try:
        yield _member(full).create(attempt)
    finally:
        full.remove(attempt)


def _settle(full: Operated) -> None:
    """Wait until the operators have handled what was submitted before: a later job is queued for lack of quota.

    It asks for another number of GPUs: Kueue writes no reason to a Workload that equals one without quota.
    """
    later = copy.deepcopy(rayjob(full.environment, job("later", team=_TEAM, group="a10g", workers=3)))
    with _submitted(full, later) as made:
        full.await_state(made, lambda state: state.stage == "queued" and "quota" in state.reason, what="queued")


def test_the_pods_of_a_schedule_have_no_gpus(full: Operated) -> None:
    """Kueue would count them, but a member makes no pods except those that submit jobs."""
    with_gpu = {**_PLAIN, "name": "first", "resources": {"limits": {_GPU: "1"}}}
    pod = {"restartPolicy": "Never", "containers": [_PLAIN]}
    for changes, rule in (
        ({"containers": [with_gpu]}, "a schedule submits jobs, and they ask for GPUs"),
        ({"initContainers": [with_gpu]}, "a schedule submits jobs, and they ask for GPUs"),
        ({"nodeName": "a10g-0"}, "nodeName is not allowed"),
    ):
        with pytest.raises(ApiError, match=rule):
            _member(full).create(_cron_job({**pod, **changes}))


_PLAIN = {"name": "main", "image": "x"}


def _cron_job(pod: Manifest) -> Manifest:
    job_template = {"spec": {"template": {"spec": pod}}}
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": job_template}
    return api_object("batch/v1", "CronJob", "gpus", namespace=_TEAM, spec=spec)

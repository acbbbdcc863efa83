"""No elastic job takes more than Kueue has counted, whatever a team's member or the sizer's account writes.

With the real API server, KubeRay and Kueue.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from infra.kube.errors import ApiError
from infra.spec.cluster_names import ELASTIC_ANNOTATION
from infra.spec.manifest import Manifest, api_object
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_jobs import rayjob
from tests.engines.kubernetes_operators import Operated
from tests.platform_charts.test_cluster_elastic import SIZER, TEAM, elastic, running, workers
from tests.training.cluster.test_cluster_queue import admitted, gpus
from tests.waiting import wait_until

_GPU = "nvidia.com/gpu"
_SECONDS = 60

Change = Callable[[Manifest], None]


def _cluster_spec(found: Manifest) -> dict[str, Any]:
    spec: dict[str, Any] = found["spec"] if found["kind"] == "RayCluster" else found["spec"]["rayClusterSpec"]
    return spec


def _group(found: Manifest) -> dict[str, Any]:
    group: dict[str, Any] = _cluster_spec(found)["workerGroupSpecs"][0]
    return group


def _sized(**amounts: int) -> Change:
    """Other fields of the group of workers."""
    return lambda found: _group(found).update(amounts)


def _second_group(found: Manifest) -> None:
    _cluster_spec(found)["workerGroupSpecs"].append({**copy.deepcopy(_group(found)), "groupName": "more"})


def _autoscaler(found: Manifest) -> None:
    _cluster_spec(found)["enableInTreeAutoscaling"] = True


def _marked(value: str | None) -> Change:
    """Another value of the annotation of elastic jobs, or none."""

    def change(found: Manifest) -> None:
        del found["metadata"]["annotations"][ELASTIC_ANNOTATION]
        if value is not None:
            found["metadata"]["annotations"][ELASTIC_ANNOTATION] = value

    return change


_ELASTIC_RULE = "an elastic job has one worker group"
_FIXED_RULE = "replicas, minReplicas and maxReplicas"
_NO_WORKERS, _MORE_THAN_THE_MOST = _sized(minReplicas=0, replicas=0), _sized(replicas=5)


def test_a_job_whose_size_kueue_would_count_otherwise_than_kuberay_is_refused(queued: Operated) -> None:
    refused = {
        _ELASTIC_RULE: (
            _NO_WORKERS,
            _sized(minReplicas=2),  # and it starts with one
            _MORE_THAN_THE_MOST,
            _sized(numOfHosts=4),
            _second_group,
        ),
        "enableInTreeAutoscaling": (_autoscaler,),
        _FIXED_RULE: (_marked("True"), _marked(None)),
    }
    for rule, changes in refused.items():
        for change in changes:
            attempt = copy.deepcopy(rayjob(queued.environment, elastic("attempt", (1, 2, 4))))
            change(attempt)
            with pytest.raises(ApiError, match=rule):
                _member(queued).create(attempt, is_dry_run=True)


def _larger_pods(found: Manifest) -> None:
    for amounts in _group(found)["template"]["spec"]["containers"][0]["resources"].values():
        amounts[_GPU] = "4"


_MORE_REPLICAS = _sized(replicas=2)
_RANGES = (_sized(maxReplicas=8), _sized(minReplicas=1, replicas=1, maxReplicas=1))
_OF_JOB: tuple[Change, ...] = (
    *_RANGES,
    _larger_pods,
    lambda found: found["spec"].update(suspend=True),
    lambda found: found["spec"].update(entrypoint="python mine.py"),
)


@pytest.fixture
def pair(queued: Operated) -> tuple[Manifest, Manifest]:
    """An elastic job and a fixed one that run."""
    return running(queued, elastic("sized", (1, 2, 4))), running(queued, gpus("fixed", TEAM, 1))


def test_nobody_but_the_sizer_changes_a_submitted_elastic_job_and_it_only_the_number_of_its_workers(
    queued: Operated, pair: tuple[Manifest, Manifest]
) -> None:
    made, fixed = pair
    for change in (_MORE_REPLICAS, *_OF_JOB):
        _refused(queued, _member(queued), made, change, "spec of a submitted job cannot be changed")
    for annotation in (None, "false", "True"):
        patch = {"metadata": {"annotations": {ELASTIC_ANNOTATION: annotation}}}
        for who in (_member(queued), _sizer(queued)):
            with pytest.raises(ApiError, match=r"cannot be changed|must be equal"):
                who.patch(made, patch)
    with pytest.raises(ApiError, match="cannot be changed"):
        _member(queued).patch(fixed, {"metadata": {"annotations": {ELASTIC_ANNOTATION: "true"}}})
    for change in _OF_JOB:
        _refused(queued, _sizer(queued), made, change, "spec of a submitted job cannot be changed")
    for change in (_MORE_THAN_THE_MOST, _NO_WORKERS):
        _refused(queued, _sizer(queued), made, change, _ELASTIC_RULE)
    _refused(queued, _sizer(queued), fixed, _MORE_REPLICAS, _FIXED_RULE)
    assert len(workers(queued, made)) == len(workers(queued, fixed)) == 1


def test_of_a_cluster_the_sizer_changes_only_the_size_of_an_elastic_one(
    queued: Operated, pair: tuple[Manifest, Manifest]
) -> None:
    elastic_cluster, fixed_cluster = (_cluster(queued, one) for one in pair)
    for change in (_MORE_THAN_THE_MOST, _NO_WORKERS, *_RANGES, _larger_pods, _autoscaler, _second_group):
        _refused(queued, _sizer(queued), elastic_cluster, change, "the sizer of elastic jobs changes only")
    _refused(queued, _sizer(queued), fixed_cluster, _MORE_REPLICAS, "the sizer of elastic jobs changes only")
    with pytest.raises(ApiError, match="forbidden"):
        _member(queued).patch(elastic_cluster, {"spec": {"workerGroupSpecs": []}})


def test_pods_beyond_the_admitted_number_stay_gated(queued: Operated, pair: tuple[Manifest, Manifest]) -> None:
    """The sizer asks Kueue first. If it did not, the pods would not get a node."""
    made, _fixed = pair
    cluster = _cluster(queued, made)
    _MORE_REPLICAS(cluster)
    _sizer(queued).patch(cluster, {"spec": cluster["spec"]})
    wait_until(lambda: len(workers(queued, made)) == 2, seconds=_SECONDS)
    queued.submit(gpus("later", TEAM, 1))
    wait_until(lambda: any(map(_is_gated, workers(queued, made))), seconds=_SECONDS)
    assert sum(map(_is_gated, workers(queued, made))) == 1
    assert not any("nodeName" in pod["spec"] for pod in workers(queued, made) if _is_gated(pod))


def test_a_job_that_takes_the_name_of_a_deleted_one_does_not_run_on_its_quota(queued: Operated) -> None:
    """Kueue finds the Workloads of an elastic job by the job's name, and compares only the numbers of pods."""
    admitted(queued, gpus("others", "platform", 4))
    admitted(queued, gpus("rest", TEAM, 2))
    small = running(queued, elastic("twice", (1, 2)))
    larger = copy.deepcopy(rayjob(queued.environment, elastic("twice", (1, 2))))
    _larger_pods(larger)
    member = _member(queued)
    member.delete(small)
    wait_until(lambda: queued.cluster.read(small) is None, seconds=_SECONDS)
    made = _created(member, larger)
    queued.await_state(made, lambda state: "quota" in state.reason, what="queued for its own pods")
    limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in workers(queued, made)]
    assert "4" not in [one.get(_GPU) for one in limits]
    found = queued.cluster.read(made)
    assert found is not None
    assert found["spec"]["suspend"] is True


def _created(member: Cluster, manifest: Manifest) -> Manifest:
    """Create at once; again where the API server counts the deleted job's objects at the same time, which is a conflict."""
    for _attempt in range(20):
        try:
            return member.create(manifest)
        except ApiError as error:
            if "resourcequotas" not in str(error):
                raise
    return member.create(manifest)


def _is_gated(pod: Manifest) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def _member(queued: Operated) -> Cluster:
    return queued.environment.member(TEAM)


def _sizer(queued: Operated) -> Cluster:
    return Cluster(queued.plane, user=SIZER)


def _cluster(queued: Operated, made: Manifest) -> Manifest:
    job = queued.cluster.read(made)
    assert job is not None
    found = queued.cluster.read(api_object("ray.io/v1", "RayCluster", job["status"]["rayClusterName"], namespace=TEAM))
    assert found is not None
    return found


def _refused(queued: Operated, who: Cluster, found: Manifest, change: Change, rule: str) -> None:
    """A change is refused, and is not there."""
    before = queued.cluster.read(found)
    assert before is not None
    changed = copy.deepcopy(before)
    change(changed)
    with pytest.raises(ApiError, match=rule):
        who.patch(before, {"spec": changed["spec"]})
    after = queued.cluster.read(found)
    assert after is not None
    assert after["spec"] == before["spec"]

"""The jobs of the calendar, from RayJobs of ours and of a team's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from infra.kube.api import KubernetesApi
from infra.lifecycle.capacity.cluster_jobs import cluster_jobs, job_of
from infra.spec.manifest import Manifest
from infra.spec.node_labels import GROUP_LABEL


def workers(pod: Manifest | None = None, *, name: str = "workers", gpus: int = 8, **fields: Any) -> Manifest:  # noqa: ANN401 - of KubeRay
    """A worker group of two pods."""
    container = {"name": "ray", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "groupName": name,
        "replicas": 2,
        "template": {"spec": {"containers": [container], **(pod or {})}},
        **fields,
    }


def rayjob(*groups: Manifest, name: str = "first", **spec: Any) -> Manifest:  # noqa: ANN401 - of KubeRay
    """A RayJob with these worker groups."""
    metadata = {"namespace": "research", "name": name, "uid": name, "creationTimestamp": "2026-11-23T10:00:00Z"}
    cluster = {"rayClusterSpec": {"workerGroupSpecs": list(groups)}}
    return {"metadata": metadata, "spec": {"activeDeadlineSeconds": 3600, **cluster, **spec}}


def workload(job: str = "first", **fields: Any) -> Manifest:  # noqa: ANN401 - of Kueue
    """A Workload of a job."""
    return {"metadata": {"ownerReferences": [{"uid": job}]}, "spec": {}, **fields}


def on(*groups: str) -> Manifest:
    """A pod spec that may run in these groups."""
    expression = {"key": GROUP_LABEL, "operator": "In", "values": list(groups)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


class Jobs:
    """An API server with these objects."""

    def __init__(self, **kinds: list[Manifest]) -> None:
        self._kinds = kinds

    def items_if_served(self, _: str, kind: str) -> list[Manifest]:
        """The objects of a kind."""
        return self._kinds.get(kind, [])


def read(jobs: list[Manifest], workloads: list[Manifest]) -> list[str]:
    """The names of the jobs, in order."""
    return [one.name for one in cluster_jobs(cast("KubernetesApi", Jobs(RayJob=jobs, Workload=workloads)))]


def test_a_job_that_waits_may_use_the_groups_that_it_names_and_has_gpus_per_pod() -> None:
    found = job_of(rayjob(workers(on("reserved", "spot"))), None)
    assert (found.groups, found.state, found.nodes, found.gpus) == (("reserved", "spot"), "waits", 2, 16)
    assert job_of(rayjob(workers({"nodeSelector": {GROUP_LABEL: "h100"}})), None).groups == ("h100",)


def test_an_admitted_job_has_the_group_of_its_workers_not_that_of_its_head() -> None:
    assigned = [
        {"name": "head", "flavors": {"cpu": "heads"}},
        {"name": "workers", "flavors": {"cpu": "h100", "gpu": "h100"}},
    ]
    conditions = [{"type": "Admitted", "status": "True", "lastTransitionTime": "2026-11-23T11:00:00Z"}]
    status = {"admission": {"podSetAssignments": assigned}, "conditions": conditions}
    found = job_of(rayjob(workers(on("h100", "spot"))), workload(status=status))
    assert (found.groups, found.state) == (("h100",), "runs")
    assert (found.since, found.deadline) == (datetime(2026, 11, 23, 11, tzinfo=UTC), timedelta(hours=1))


def test_a_job_that_names_no_group_is_in_none() -> None:
    empty = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
    other = {**rayjob(), "spec": {"clusterSelector": {"ray.io/cluster": "other"}}}
    for job in (rayjob(workers()), rayjob(), other, rayjob(workers({"affinity": empty}))):
        assert job_of(job, None).groups == (), job


def test_a_job_of_a_team_s_own_may_have_several_worker_groups_and_no_deadline() -> None:
    own = rayjob(workers(on("h100"), name="Actors"), workers(on("spot"), name="learners", gpus=1))
    del own["spec"]["activeDeadlineSeconds"]
    found = job_of(own, None)
    assert (found.groups, found.nodes, found.gpus, found.deadline) == (("h100", "spot"), 4, 18, None)
    status = {"admission": {"podSetAssignments": [{"name": "actors", "flavors": {"cpu": "h100"}}]}}
    assert job_of(own, workload(status=status)).groups == ("h100",)


def test_jobs_are_in_the_order_of_the_queue_without_those_that_have_ended_or_are_stopped() -> None:
    ended = {**rayjob(name="ended"), "status": {"jobDeploymentStatus": "Complete"}}
    young = rayjob(name="young")
    young["metadata"]["creationTimestamp"] = "2026-11-23T11:00:00Z"
    jobs = [young, rayjob(name="old"), rayjob(name="urgent"), rayjob(name="stopped"), ended]
    workloads = [workload("urgent", spec={"priority": 3000}), workload("old", spec={"priority": 2000})]
    workloads += [workload("young", spec={"priority": 2000}), workload("stopped", spec={"active": False})]
    assert read(jobs, workloads) == ["urgent", "old", "young"]

"""Queue positions, which Workload of a job counts, and which jobs wait until elastic jobs have returned quota."""

from __future__ import annotations

from infra.kube.api import KubernetesApi
from infra.spec.manifest import Manifest
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.request import JobRequest
from tests.platform_charts.jobs.targets import job, target_of
from tests.training.cluster.samples import workload
from training.cluster.lent_quota import gated_if_lent
from training.cluster.objects import current_workload
from training.cluster.queue_position import QueuePosition, positions_in_summary, positions_in_workloads


def test_positions_of_the_visibility_api_are_counted_from_one_and_include_all_teams() -> None:
    entry = {"metadata": {"name": "mine"}, "positionInLocalQueue": 0, "positionInClusterQueue": 3}
    assert positions_in_summary({"items": [entry]}) == {"mine": QueuePosition(in_team=1, in_cluster=4)}
    assert (str(QueuePosition(in_team=2)), str(QueuePosition(in_team=2, in_cluster=7))) == ("2", "2 (7 of all teams)")


def test_priority_comes_before_age_and_only_pending_workloads_are_counted() -> None:
    queue = [
        workload("old", created="2026-11-21T08:00:00Z"),
        workload("mine", created="2026-11-21T09:00:00Z", priority=10),
        workload("urgent", created="2026-11-21T10:00:00Z", priority=100),
        workload("runs", priority=100, QuotaReserved="ok"),
        workload("stopped", priority=100, active=False),
        workload("over", priority=100, Finished="ok"),
    ]
    assert positions_in_workloads(queue) == {
        "urgent": QueuePosition(in_team=1),
        "mine": QueuePosition(in_team=2),
        "old": QueuePosition(in_team=3),
    }


def _slice(name: str, hour: int, *conditions: str) -> Manifest:
    made = workload(name, created=f"2026-11-21T{hour:02}:00:00Z")
    return {**made, "status": {"conditions": [{"type": kind, "status": "True"} for kind in conditions]}}


HELD = ("QuotaReserved", "Admitted")
DONE = (*HELD, "Finished")


def test_the_workload_of_an_elastic_job_is_the_one_that_holds_its_quota() -> None:
    for workloads, expected, why in (
        ([_slice("first", 1)], "first", "the only one"),
        ([_slice("new", 2, *HELD), _slice("old", 1, *DONE)], "new", "not one that was replaced"),
        ([_slice("asked", 2), _slice("held", 1, *HELD)], "held", "not what the job asks for"),
        ([_slice("old", 1, *HELD), _slice("new", 2, *HELD)], "new", "the newest that holds quota"),
        ([_slice("old", 1, *DONE), _slice("new", 2, *DONE)], "new", "the last of a job that is over"),
    ):
        found = current_workload(workloads)
        assert found is not None
        assert found["metadata"]["name"] == expected, why
    assert current_workload([]) is None


GATE = "kueue.x-k8s.io/admission-gated-by"
TARGET = target_of("dev")


class Queues(KubernetesApi):
    """An API server whose queues `research` and `platform` own 4 GPUs each, and have reserved so many."""

    def __init__(self, research: str, platform: str, *, unowned: str = "0") -> None:
        self._used = {"research": research, "platform": platform}
        self._unowned = unowned

    def items_if_served(self, api_version: str, kind: str, *, labels: str = "") -> list[Manifest]:
        assert (api_version, labels) == ("kueue.x-k8s.io/v1beta2", "")
        if kind == "Cohort":
            return [{"metadata": {"name": "all"}, "spec": _quotas(self._unowned)}]
        return [
            {
                "metadata": {"name": name},
                "spec": _quotas("4"),
                "status": {"flavorsReservation": [_flavor("total", used)]},
            }
            for name, used in self._used.items()
        ]


def _quotas(gpus: str) -> Manifest:
    return {"resourceGroups": [{"flavors": [_flavor("nominalQuota", gpus)]}]}


def _flavor(field: str, gpus: str) -> Manifest:
    return {"name": "a10g", "resources": [{"name": "cpu", field: "500m"}, {"name": "nvidia.com/gpu", field: gpus}]}


def _gated(queues: Queues, request: JobRequest) -> Manifest:
    (made,) = [one for one in render_job(request, TARGET) if one["kind"] == "RayJob"]
    found: Manifest = gated_if_lent(queues, made, queue="platform")["metadata"]
    return found


def test_a_job_gets_a_gate_if_its_team_has_lent_the_gpus_that_it_needs() -> None:
    for queues, gate, why in (
        (Queues("8", "0"), "ray-train-platform/quota-return", "all is lent"),
        (Queues("6", "0"), "ray-train-platform/quota-return", "a part is lent"),
        (Queues("4", "0"), None, "it fits"),
        (Queues("7", "1"), None, "the team owns too little"),
        (Queues("8", "0", unowned="1k"), None, "it fits into what nobody owns"),
    ):
        made = _gated(queues, job(team="platform", workers=4, group="a10g", cpus_per_worker=2))
        assert made["annotations"].get(GATE) == gate, why
        assert made["labels"].get("ray-train-platform/quota-return") == ("true" if gate else None), why


def test_elastic_jobs_and_those_without_gpus_of_that_group_never_do() -> None:
    for request in (
        job(team="platform", workers=4, sizes=(2, 4), group="a10g", cpus_per_worker=2),
        job(team="platform", workers=2, gpus_per_worker=0, cpus_per_worker=2),
        job(team="platform", workers=1, group="t4", cpus_per_worker=2),
    ):
        assert GATE not in _gated(Queues("8", "0"), request)["annotations"], request

"""Which jobs wait until elastic jobs have returned quota, from the figures of the queues."""

from __future__ import annotations

from infra.kube.api import KubernetesApi
from infra.spec.manifest import Manifest
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.request import JobRequest
from tests.platform_charts.jobs.targets import job, target_of
from training.cluster.lent_quota import gated_if_lent

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

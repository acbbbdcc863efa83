"""What the objects of Kueue and KubeRay say; that these programs write such objects is shown by the tests of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from platform_charts.images.job_sizer.reading import (
    MOST,
    SIZES,
    admitted_slice,
    claims_of,
    holding_of,
    quota_of,
    sized_of,
)

NOW = datetime(2026, 1, 1, 12, 0, 40, tzinfo=UTC)
CREATED = "2026-01-01T12:00:00Z"
GPU = "nvidia.com/gpu"
QUEUES = {("vision", "jobs"): "vision", ("speech", "jobs"): "speech"}
FLAVORS = {"a10g": {"gpu": "a10g"}, "h100": {"gpu": "h100"}}


def conditions(*kinds: str) -> list[dict[str, str]]:
    return [{"type": kind, "status": "True"} for kind in kinds]


def workload(
    pods: int,
    *kinds: str,
    granted: int | None = None,
    created: str = CREATED,
    selector: Mapping[str, str] | None = None,
    **spec: Any,  # noqa: ANN401 - other fields of the spec
) -> dict[str, Any]:
    """A Workload of the job `first` of the team `vision`, whose workers have a GPU each.

    Args:
        pods: workers of the spec.
        kinds: its conditions that are true.
        granted: workers when it was admitted; None if it was not.
        created: its time of creation.
        selector: node selector of the workers.
        spec: other fields of the spec.
    """
    container = {"resources": {"requests": {"cpu": "500m", "ephemeral-storage": "1Gi"}, "limits": {GPU: "1"}}}
    template = {"spec": {"nodeSelector": selector, "containers": [container]}}
    status: dict[str, Any] = {"conditions": conditions(*kinds)}
    if granted is not None:
        usage = {GPU: str(granted), "cpu": f"{500 * granted}m"}
        assigned = {
            "name": "workers",
            "count": granted,
            "flavors": {GPU: "a10g", "cpu": "a10g"},
            "resourceUsage": usage,
        }
        status["admission"] = {"clusterQueue": "vision", "podSetAssignments": [assigned]}
    owner = {"name": "first", "uid": "1"}
    return {
        "metadata": {"namespace": "vision", "creationTimestamp": created, "ownerReferences": [owner]},
        "spec": {"queueName": "jobs", "podSets": [{"name": "workers", "count": pods, "template": template}], **spec},
        "status": status,
    }


def queue(name: str, gpus: int, **limits: str) -> dict[str, Any]:
    resources = [{"name": GPU, "nominalQuota": str(gpus), **limits}]
    return {
        "metadata": {"name": name},
        "spec": {"resourceGroups": [{"flavors": [{"name": "a10g", "resources": resources}]}]},
    }


def job(replicas: int, *, sizes: str = "1,2,4") -> dict[str, Any]:
    group = {"groupName": "workers", "replicas": replicas, "minReplicas": 1, "maxReplicas": 4}
    return {
        "metadata": {"namespace": "vision", "name": "first", "annotations": {SIZES: sizes}},
        "spec": {"rayClusterSpec": {"workerGroupSpecs": [group]}},
        "status": {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"},
    }


def pod(name: str, *, phase: str = "Running", group: str = "workers") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "creationTimestamp": CREATED, "labels": {"ray.io/group": group}},
        "spec": {},
        "status": {"phase": phase, "conditions": conditions("Ready")},
    }


def test_quota_is_what_the_queues_own_without_what_admitted_workloads_hold() -> None:
    held = workload(3, "QuotaReserved", granted=3)
    others = [workload(4), workload(4, "QuotaReserved", "Finished", granted=4)]
    found = quota_of([queue("vision", 2), queue("speech", 4, borrowingLimit="1")], [], [held, *others])
    key = ("a10g", GPU)
    left = [found.own["vision"][key], found.own["speech"][key], found.idle[key]]
    assert left == [Decimal(-1), Decimal(4), Decimal(3)]
    assert found.limits == {"vision": {}, "speech": {key: 1}}


def test_a_cohort_lends_its_own_quota_and_a_workload_holds_no_pods_that_it_has_returned() -> None:
    assert quota_of([], [queue("gpus", 8)], []).idle == {("a10g", GPU): 8}
    found = quota_of([queue("vision", 4)], [], [workload(1, "QuotaReserved", granted=4)])
    assert found.idle == {("a10g", GPU): 3}


def test_a_workload_that_would_not_be_admitted_and_a_larger_slice_of_an_elastic_job_claim_nothing() -> None:
    for claims_nothing in (
        workload(1, active=False),
        workload(1, queueName="unknown"),
        workload(1, "QuotaReserved"),
        workload(1, "Finished"),
    ):
        assert claims_of([claims_nothing], queues=QUEUES, flavors=FLAVORS, elastic=[]) == []
    assert claims_of([workload(4)], queues=QUEUES, flavors=FLAVORS, elastic=["1"]) == []


def test_a_job_that_waits_claims_what_its_pods_ask_for_of_the_flavors_that_may_take_them() -> None:
    waiting = workload(2, priority=5)
    (claim,) = claims_of([waiting], queues=QUEUES, flavors=FLAVORS, elastic=[])
    assert (claim.name, claim.queue, claim.order) == ("vision/first", "vision", (-5, CREATED))
    asked = {"cpu": Decimal(1), GPU: Decimal(2)}
    assert claim.choices == [{"a10g": asked, "h100": asked}]
    (chosen,) = claims_of([workload(2, selector={"gpu": "h100"})], queues=QUEUES, flavors=FLAVORS, elastic=[])
    assert chosen.choices == [{"h100": asked}]


def test_the_newest_slice_with_quota_counts() -> None:
    old = workload(1, "QuotaReserved", granted=1)
    new = workload(2, "QuotaReserved", granted=2, created="2026-01-01T12:00:30Z")
    evicted = workload(4, "QuotaReserved", "Evicted", granted=4, created="2026-01-01T12:00:35Z")
    assert admitted_slice([old, new, evicted, workload(4)]) is new
    assert admitted_slice([workload(4)]) is None


def test_an_elastic_job_has_the_worker_pods_that_have_not_ended() -> None:
    admitted = workload(2, "QuotaReserved", granted=2)
    pods = [pod("a"), pod("b"), pod("c", phase="Failed"), pod("head", group="headgroup")]
    found = holding_of(job(2), [admitted], {"spec": job(2)["spec"]["rayClusterSpec"]}, pods, now=NOW)
    assert (found.asked, found.admitted, found.cluster, found.has_waited) == (2, 2, 2, False)
    assert [one.name for one in found.pods] == ["a", "b"]
    sized = sized_of(job(2), found, [admitted])
    assert sized is not None
    assert (sized.queue, sized.pods, sized.may_grow) == ("vision", 2, True)
    assert sized.needs == {("a10g", GPU): 1, ("a10g", "cpu"): Decimal("0.5")}


def test_a_job_does_not_grow_while_its_pods_are_missing() -> None:
    admitted = workload(2, "QuotaReserved", granted=2)
    sized = sized_of(job(2), holding_of(job(2), [admitted], None, [pod("a")], now=NOW), [admitted])
    assert sized is not None
    assert not sized.may_grow


def test_a_larger_slice_has_waited_after_half_a_minute() -> None:
    for created, has_waited in ((CREATED, True), ("2026-01-01T12:00:30Z", False)):
        workloads = [workload(1, "QuotaReserved", granted=1), workload(4, created=created)]
        assert holding_of(job(4), workloads, None, [], now=NOW).has_waited is has_waited


def test_a_job_has_the_sizes_in_its_range_that_its_user_allows() -> None:
    for named, sizes in (("1,2,4", [1, 2, 4]), ("", [1]), ("2,nonsense,-1,99", [1, 2]), ("4,2,2", [1, 2, 4])):
        assert list(holding_of(job(1, sizes=named), [], None, [], now=NOW).sizes) == sizes, named
    limits = {"2": [1, 2], "3": [1, 2], "0": [1], "99": [1, 2, 4], "nonsense": [1, 2, 4]}
    for most, sizes in limits.items():
        limited = job(1)
        limited["metadata"]["annotations"][MOST] = most
        assert list(holding_of(limited, [], None, [], now=NOW).sizes) == sizes, most

"""Cases of `observability.alerts.queue`."""

from __future__ import annotations

from tests.observability.alerts.cases.case import Case, flat, later, rising, series

_JOB = {"namespace": "vision", "name": "first"}
_QUEUE = {"cluster_queue": "vision"}


def _state(state: str) -> str:
    return series("kuberay_job_deployment_status", **_JOB, deployment_status=state)


def _pending(status: str, role: str) -> str:
    return series("kueue_pending_workloads", **_QUEUE, status=status, replica_role=role)


def _waits(le: str) -> str:
    return series("kueue_admission_wait_time_seconds_bucket", **_QUEUE, le=le)


_ADMITTED = series("kueue_admitted_workloads_total", **_QUEUE, replica_role="leader")
_EVICTED = series("kueue_evicted_workloads_total", **_QUEUE, reason="PodsReadyTimeout")
_ACTIVE = series("kueue_cluster_queue_status", **_QUEUE, status="active")
_PROVISIONED = series("kuberay_cluster_condition_provisioned", **_JOB, condition="false")
_UNSCHEDULABLE = [series("kube_pod_status_unschedulable", namespace="vision", pod=pod) for pod in ("w1", "w2")]

CASES = {
    "JobNotStarting": Case(
        at=35,
        series={_state("Initializing"): flat(1, 35)},
        labels=_JOB,
        summary="Job vision/first was admitted 30 minutes ago, and its cluster is not ready.",
        silent={
            "ready after 25 minutes": {
                _state("Initializing"): "1+0x25 stale",
                _state("Running"): later(25, flat(1, 10)),
            },
            "waiting in the queue": {_state("Initializing"): "", _state("Suspended"): flat(1, 35)},
        },
    ),
    "JobFailed": Case(
        at=1,
        series={_state("Failed"): flat(1, 1)},
        labels={**_JOB, "deployment_status": "Failed"},
        summary="Job vision/first has ended as Failed.",
        silent={"complete": {_state("Failed"): "", _state("Complete"): flat(1, 1)}},
    ),
    "WorkersMissing": Case(
        at=25,
        series={_PROVISIONED: flat(1, 25), **dict.fromkeys(_UNSCHEDULABLE, flat(1, 25))},
        labels=_JOB,
        summary="Cluster vision/first lacks workers; 2 pods of its team fit on no node.",
        silent={
            "the pods have nodes": dict.fromkeys(_UNSCHEDULABLE, ""),
            "a node after 15 minutes": dict.fromkeys(_UNSCHEDULABLE, "1+0x15 stale"),
        },
    ),
    "QueueStarved": Case(
        at=370,
        series={
            _pending("active", "leader"): flat(1, 370),
            _pending("active", "follower"): flat(1, 370),
            _ADMITTED: flat(10, 370),
        },
        labels=_QUEUE,
        summary="1 jobs wait in queue vision, and none was admitted for six hours.",
        silent={
            "a job is admitted": {_ADMITTED: "10+0x180 11+0x190"},
            "no job waits": {_pending("active", "leader"): flat(0, 370), _pending("active", "follower"): flat(0, 370)},
        },
    ),
    "QueueWaitLong": Case(
        at=60,
        series={_waits("10240"): flat(0, 60), _waits("20480"): rising(1, 60), _waits("+Inf"): rising(1, 60)},
        labels=_QUEUE,
        summary="A tenth of the jobs of queue vision wait longer than 5h 24m 16s.",
        silent={"shorter": {_waits("10240"): rising(1, 60)}},
    ),
    "QueueInactive": Case(
        at=65,
        series={_ACTIVE: flat(0, 65)},
        labels=_QUEUE,
        summary="Queue vision has admitted no jobs for an hour, because it is not active.",
        silent={"held for 50 minutes": {_ACTIVE: "0+0x50 1+0x15"}, "active": {_ACTIVE: flat(1, 65)}},
    ),
    "JobInadmissible": Case(
        at=1450,
        series={_pending("inadmissible", "leader"): flat(2, 1450)},
        labels=_QUEUE,
        summary="2 jobs of queue vision could not be admitted for a day.",
        silent={"admitted in between": {_pending("inadmissible", "leader"): "2+0x700 0+0x5 2+0x745"}},
    ),
    "JobsNotReadyInTime": Case(
        at=75,
        series={_EVICTED: later(70, flat(3, 5))},
        labels=_QUEUE,
        summary="3 jobs of queue vision lost their place within an hour: their pods did not become ready.",
        silent={
            "at the limit": {_EVICTED: later(70, flat(2, 5))},
            "for another reason": {
                _EVICTED: "",
                series("kueue_evicted_workloads_total", **_QUEUE, reason="Preempted"): later(70, flat(9, 5)),
            },
            "the counter restarts": {_EVICTED: "9+0x70 4+0x5"},
        },
    ),
}

"""What must not happen to a running job while the platform under it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from infra.spec.cluster_names import KUEUE_API
from infra.spec.manifest import Manifest
from tests.engines.kubernetes_history import History, Life

KINDS: Mapping[str, str] = {
    "pods": "/api/v1",
    "rayclusters": "/apis/ray.io/v1",
    "rayjobs": "/apis/ray.io/v1",
    "workloads": f"/apis/{KUEUE_API}",
}
"""Path of the API group and version of what a job consists of."""


def disturbances(history: History) -> list[str]:
    """What has happened to the jobs of a namespace that ran from the beginning of the history: nothing, if it is empty.

    No object is deleted, even for a moment, and no other takes its place; none changes its spec; every vital sign stays as it was.
    """
    return [
        f"{life.kind} {life.name}: {what}"
        for life in history.lives.values()
        for what in dict.fromkeys(_disturbed(life, history))
    ]


def _disturbed(life: Life, history: History) -> Iterator[str]:
    first = life.states[0]
    if first["metadata"]["uid"] not in history.initial:
        yield "was not there at the beginning"
        return
    if life.is_deleted:
        yield "was deleted"
    signs = _SIGNS[life.kind]
    for state in life.states[1:]:
        if "deletionTimestamp" in state["metadata"]:
            yield "was being deleted"
        if state["spec"] != first["spec"]:
            yield "its spec changed"
        for name, value in signs(state).items():
            if value != (before := signs(first).get(name)):
                yield f"{name} was {before}, then {value}"


def _of_pod(pod: Manifest) -> dict[str, object]:
    containers = pod["status"].get("containerStatuses", ())
    return {
        "phase": pod["status"].get("phase"),
        "restarts": sum(one["restartCount"] for one in containers),
        **_conditions(pod, "Ready"),
    }


def _of_cluster(cluster: Manifest) -> dict[str, object]:
    return {"state": cluster["status"].get("state"), **_conditions(cluster, "HeadPodReady", "RayClusterProvisioned")}


def _of_job(job: Manifest) -> dict[str, object]:
    names = ("jobStatus", "jobDeploymentStatus", "jobId", "rayClusterName", "startTime", "failed")
    return {name: job["status"].get(name) for name in names}


def _of_workload(workload: Manifest) -> dict[str, object]:
    return _conditions(workload, "QuotaReserved", "Admitted", "PodsReady", "Evicted")


def _conditions(one: Manifest, *types: str) -> dict[str, object]:
    """Status of each condition, and since when: a condition that was another one in between has a later time."""
    found = {one["type"]: f"{one['status']} since {one['lastTransitionTime']}" for one in one["status"]["conditions"]}
    return {type_: found.get(type_) for type_ in types}


_SIGNS: Mapping[str, Callable[[Manifest], dict[str, object]]] = {
    "pods": _of_pod,
    "rayclusters": _of_cluster,
    "rayjobs": _of_job,
    "workloads": _of_workload,
}

"""`python -m job_sizer`: every few seconds, compare what elastic jobs have with what they should have, and do the next step.

It polls, because what a job should have depends on all jobs of its team. An unavailable API server ends the program, and
Kubernetes restarts it with a backoff; meanwhile jobs keep their size.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from .reading import ELASTIC, GATE, GATE_ANNOTATION, claims_of, holding_of, name_of, quota_of, sized_of
from .sizing import Target, targets
from .steps import Holding, next_step

_RAY = ("ray.io", "v1")
_KUEUE = ("kueue.x-k8s.io", "v1beta2")
_UID_LABEL = "kueue.x-k8s.io/job-uid"
"""Label of a Workload: the UID of its job (Kueue, constants.JobUIDLabel)."""

ELASTIC_LABEL = "ray-train-platform/elastic"
"""Label of elastic RayJobs, `true`. It only saves reading the others: the annotation makes a job elastic."""

GATE_LABEL = "ray-train-platform/quota-return"
"""Label of RayJobs that were submitted with the gate, `true`."""

TEXT = "ray-train-platform/sizing"
"""Annotation of an elastic RayJob that this program writes: how many workers it has, and what becomes of them."""

_LONGEST_GATE_SECONDS = 900.0
"""A job is admitted after that in any case: what still holds its quota is then preempted. Pods end within 5 minutes."""

ENDED = frozenset({"Complete", "Failed", "ValidationFailed"})
_PAGE = 100
_SECONDS = 30

Object = dict[str, Any]


class Objects:
    """The objects of the teams' namespaces that this program reads and writes.

    Args:
        api: client of the API server.
        namespaces: of the teams.
    """

    def __init__(self, api: client.ApiClient, *, namespaces: Sequence[str]) -> None:
        self._custom = client.CustomObjectsApi(api)
        self._core = client.CoreV1Api(api)
        self._api = api
        self._namespaces = namespaces

    def elastic_jobs(self) -> list[Object]:
        """The elastic RayJobs that are not over, the oldest first."""
        found = [
            job
            for namespace in self._namespaces
            for job in self._list(_RAY, "rayjobs", namespace, label_selector=f"{ELASTIC_LABEL}=true")
            if job["metadata"].get("annotations", {}).get(ELASTIC) == "true"
            and "deletionTimestamp" not in job["metadata"]
            and (job.get("status") or {}).get("jobDeploymentStatus") not in ENDED
        ]
        return sorted(found, key=lambda job: (job["metadata"]["creationTimestamp"], name_of(job)))

    def gated_jobs(self) -> list[Object]:
        """The RayJobs that wait until elastic jobs have returned quota."""
        return [
            job
            for namespace in self._namespaces
            for job in self._list(_RAY, "rayjobs", namespace, label_selector=f"{GATE_LABEL}=true")
            if job["metadata"].get("annotations", {}).get(GATE_ANNOTATION) == GATE
        ]

    def workloads(self) -> list[Object]:
        """All Workloads."""
        return [one for namespace in self._namespaces for one in self._list(_KUEUE, "workloads", namespace)]

    def local_queues(self) -> dict[tuple[str, str], str]:
        """ClusterQueue of each LocalQueue."""
        return {
            (namespace, one["metadata"]["name"]): one["spec"]["clusterQueue"]
            for namespace in self._namespaces
            for one in self._list(_KUEUE, "localqueues", namespace)
        }

    def of_cluster(self, plural: str) -> list[Object]:
        """All objects of a kind of Kueue's that belong to no namespace."""
        return list(self._custom.list_cluster_custom_object(*_KUEUE, plural, _request_timeout=_SECONDS)["items"])

    def cluster(self, job: Object) -> Object | None:
        """The RayCluster of a job; None without."""
        name = (job.get("status") or {}).get("rayClusterName")
        if not name:
            return None
        try:
            found: Object = self._custom.get_namespaced_custom_object(
                *_RAY, job["metadata"]["namespace"], "rayclusters", name, _request_timeout=_SECONDS
            )
        except ApiException as error:
            if error.status == 404:
                return None
            raise
        return found

    def pods(self, cluster: Object) -> list[Object]:
        """The pods of a RayCluster."""
        found = self._core.list_namespaced_pod(
            cluster["metadata"]["namespace"],
            label_selector=f"ray.io/cluster={cluster['metadata']['name']}",
            _request_timeout=_SECONDS,
        )
        plain: list[Object] = self._api.sanitize_for_serialization(found.items)
        return plain

    def resize_job(self, job: Object, pods: int) -> None:
        """Set the number of worker pods in a RayJob, if nobody has changed it meanwhile."""
        path = "/spec/rayClusterSpec/workerGroupSpecs/0/replicas"
        before = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"]
        self._patch(
            job,
            "rayjobs",
            [
                {"op": "test", "path": "/metadata/uid", "value": job["metadata"]["uid"]},
                {"op": "test", "path": path, "value": before},
                {"op": "replace", "path": path, "value": pods},
            ],
        )

    def resize_cluster(self, cluster: Object, pods: int, leaving: Sequence[str]) -> None:
        """Set the number of worker pods of a RayCluster, and the names of those that end."""
        group = "/spec/workerGroupSpecs/0"
        self._patch(
            cluster,
            "rayclusters",
            [
                {"op": "test", "path": "/metadata/uid", "value": cluster["metadata"]["uid"]},
                {"op": "replace", "path": f"{group}/replicas", "value": pods},
                # KubeRay counts a pod that is ending unless it is named here, and would end another one.
                {"op": "add", "path": f"{group}/scaleStrategy", "value": {"workersToDelete": list(leaving)}},
            ],
        )

    def open_gate(self, job: Object) -> None:
        """Let Kueue admit a job."""
        path = f"/metadata/annotations/{GATE_ANNOTATION.replace('/', '~1')}"
        uid = {"op": "test", "path": "/metadata/uid", "value": job["metadata"]["uid"]}
        self._patch(job, "rayjobs", [uid, {"op": "test", "path": path, "value": GATE}, {"op": "remove", "path": path}])

    def say(self, job: Object, text: str) -> None:
        """Write what becomes of a job."""
        if job["metadata"]["annotations"].get(TEXT) != text:
            path = f"/metadata/annotations/{TEXT.replace('/', '~1')}"
            uid = {"op": "test", "path": "/metadata/uid", "value": job["metadata"]["uid"]}
            self._patch(job, "rayjobs", [uid, {"op": "add", "path": path, "value": text}])

    def _patch(self, found: Object, plural: str, operations: Sequence[Mapping[str, Any]]) -> None:
        metadata = found["metadata"]
        self._custom.patch_namespaced_custom_object(
            *_RAY,
            metadata["namespace"],
            plural,
            metadata["name"],
            list(operations),
            field_manager="job-sizer",
            _content_type="application/json-patch+json",
            _request_timeout=_SECONDS,
        )

    def _list(self, version: tuple[str, str], plural: str, namespace: str, **options: str) -> Iterator[Object]:
        token = ""
        while True:
            page = self._custom.list_namespaced_custom_object(
                *version, namespace, plural, limit=_PAGE, _continue=token, _request_timeout=_SECONDS, **options
            )
            yield from page["items"]
            token = page["metadata"].get("continue", "")
            if not token:
                return


@dataclass(frozen=True, kw_only=True)
class _Elastic:
    """An elastic job with its objects."""

    job: Object
    workloads: Sequence[Object]
    cluster: Object | None
    holding: Holding


def poll(objects: Objects) -> list[str]:
    """Do the next step of every elastic job, and let jobs be admitted for which nothing is returned, or no more.

    Returns:
        A log line for each job that changed, or could not be changed.
    """
    jobs, gated = objects.elastic_jobs(), objects.gated_jobs()
    if not jobs and not gated:
        return []
    workloads = objects.workloads()
    found = [_with_objects(objects, job, workloads) for job in jobs]
    sized = [size for one in found if (size := sized_of(one.job, one.holding, one.workloads)) is not None]
    claims = claims_of(
        workloads,
        queues=objects.local_queues(),
        flavors={
            one["metadata"]["name"]: one["spec"].get("nodeLabels", {}) for one in objects.of_cluster("resourceflavors")
        },
        elastic=[one.job["metadata"]["uid"] for one in found if one.holding.admitted is not None],
    )
    quota = quota_of(objects.of_cluster("clusterqueues"), objects.of_cluster("cohorts"), workloads)
    wanted = targets(sized, claims, quota)
    lines = [_do(objects, one, wanted.get(name_of(one.job))) for one in found]
    awaited = {name for target in wanted.values() for name in target.claims}
    lines += [_open(objects, job) for job in gated if name_of(job) not in awaited or _is_late(job)]
    return list(filter(None, lines))


def _with_objects(objects: Objects, job: Object, workloads: Sequence[Object]) -> _Elastic:
    uid, cluster = job["metadata"]["uid"], objects.cluster(job)
    own = [one for one in workloads if one["metadata"].get("labels", {}).get(_UID_LABEL) == uid]
    pods = [] if cluster is None else objects.pods(cluster)
    holding = holding_of(job, own, cluster, pods, now=datetime.now(UTC))
    return _Elastic(job=job, workloads=own, cluster=cluster, holding=holding)


def _do(objects: Objects, one: _Elastic, target: Target | None) -> str:
    """Do the next step of a job; returns what was done."""
    step, name = next_step(one.holding, target), name_of(one.job)
    try:
        if step.cluster is not None and one.cluster is not None:
            objects.resize_cluster(one.cluster, step.cluster, step.leaving)
        if step.asked is not None:
            objects.resize_job(one.job, step.asked)
        objects.say(one.job, step.text)
    except ApiException as error:
        # The job is over, another one has its name, or somebody was faster: the next poll looks at it again.
        return f"{name}: not resized ({error.status} {error.reason})"
    return "" if step.asked is None and step.cluster is None else f"{name}: {step.text}"


def _open(objects: Objects, job: Object) -> str:
    try:
        objects.open_gate(job)
    except ApiException as error:
        return f"{name_of(job)}: gate not opened ({error.status} {error.reason})"
    return f"{name_of(job)}: may be admitted"


def _is_late(job: Object) -> bool:
    created = datetime.fromisoformat(job["metadata"]["creationTimestamp"])
    return (datetime.now(UTC) - created).total_seconds() > _LONGEST_GATE_SECONDS


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m job_sizer", description=__doc__)
    made.add_argument(
        "--namespace", action="append", required=True, metavar="NAME", help="namespace of a team; several times"
    )
    made.add_argument("--interval", type=float, default=10.0, help="seconds between polls")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until killed."""
    options = parser().parse_args(arguments)
    config.load_config()
    objects = Objects(client.ApiClient(), namespaces=options.namespace)
    while True:
        for line in poll(objects):
            print(line, flush=True)
        time.sleep(options.interval)


if __name__ == "__main__":
    main()

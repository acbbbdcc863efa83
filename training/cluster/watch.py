"""Reads the objects of a job, from which `state` derives its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from infra.kube.errors import ApiError
from infra.spec.cluster_names import KUEUE_API
from infra.spec.manifest import Manifest, api_object
from platform_charts.jobs.scheduling import JOB_LABEL
from training.cluster.context import ClusterContext
from training.cluster.node_room import NodeRoom, room_by_group
from training.cluster.objects import EVENT, POD, RAY_JOB, WORKLOAD, current_workload
from training.cluster.queue_position import QueuePosition, is_pending, positions_in_summary, positions_in_workloads
from training.cluster.state import Observation

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_NO_VISIBILITY = frozenset({403, 404, 503})
"""Kueue's visibility API is not served, or this user may not read it."""


class JobWatch:
    """Observes one job.

    Attributes:
        namespace: of the job.
        name: of the job.
    """

    def __init__(
        self, api: KubernetesApi, *, namespace: str, name: str, rooms: Mapping[str, NodeRoom] | None = None
    ) -> None:
        self._api = api
        self._rooms = rooms or {}
        self.namespace = namespace
        self.name = name

    def observe(self) -> Observation:
        """Read the objects of the job.

        Raises:
            ConnectionLostError: the API server does not answer.
            ApiError: it refuses the request.
        """
        job = self._api.read(api_object(*RAY_JOB, self.name, namespace=self.namespace))
        if job is None:
            return Observation(job=None)
        pods = self._api.items(*POD, namespace=self.namespace, labels=f"{JOB_LABEL}={self.name}")
        workload = workload_of(self._api, job)
        return Observation(
            job=job,
            workload=workload,
            position=None if workload is None else self._position_of(workload),
            pods=pods,
            events=self._events(job, pods),
            rooms=self._rooms,
        )

    def submitter(self) -> Manifest | None:
        """The pod that prints the driver's log, the newest if the job was retried; None before there is one."""
        labels = f"{JOB_LABEL}={self.name},batch.kubernetes.io/job-name={self.name}"
        pods = self._api.items(*POD, namespace=self.namespace, labels=labels)
        return max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)

    def _position_of(self, workload: Manifest) -> QueuePosition | None:
        return queue_positions(self._api, self.namespace, [workload]).get(workload["metadata"]["name"])

    def _events(self, job: Manifest, pods: list[Manifest]) -> list[Manifest]:
        """Events of the job, its cluster and its pods, those that are gone included; none once the driver runs."""
        status = job.get("status") or {}
        if status.get("jobStatus") or job["spec"].get("suspend"):
            return []
        cluster = status.get("rayClusterName")
        names = {self.name, cluster, *(pod["metadata"]["name"] for pod in pods)}
        of_cluster = f"{cluster}-" if cluster else "/"  # no name has a slash
        return [
            event
            for event in self._api.items(*EVENT, namespace=self.namespace)
            if (about := event["involvedObject"].get("name", "")) in names or about.startswith(of_cluster)
        ]


def watch_of(api: KubernetesApi, context: ClusterContext, name: str) -> JobWatch:
    """Observes a job of a command's team, and knows what the nodes of its stack offer."""
    return JobWatch(api, namespace=context.team.namespace, name=name, rooms=room_by_group(context.target))


def workload_of(api: KubernetesApi, job: Manifest) -> Manifest | None:
    """The Workload that counts of those that Kueue made for a RayJob; None before there is one."""
    metadata = job["metadata"]
    labels = f"kueue.x-k8s.io/job-uid={metadata['uid']}"
    return current_workload(api.items(*WORKLOAD, namespace=metadata["namespace"], labels=labels))


def queue_positions(api: KubernetesApi, namespace: str, workloads: Sequence[Manifest]) -> dict[str, QueuePosition]:
    """Queue positions of those Workloads of a namespace that are pending, by name.

    One request for each LocalQueue with pending Workloads, however many there are.
    """
    queues = {one["spec"].get("queueName", "") for one in workloads if is_pending(one)}
    found: dict[str, QueuePosition] = {}
    for queue in sorted(queues):
        summary = _pending_workloads(api, namespace, queue)
        if summary is None:
            in_namespace = api.items(*WORKLOAD, namespace=namespace)
            found |= positions_in_workloads(one for one in in_namespace if one["spec"].get("queueName") == queue)
        else:
            found |= positions_in_summary(summary)
    return found


def _pending_workloads(api: KubernetesApi, namespace: str, queue: str) -> Manifest | None:
    """The PendingWorkloadsSummary of a LocalQueue (Kueue, "Pending workloads on-demand"); None without visibility API."""
    # By path, as Kueue's documentation does: discovery gives its resources for both kinds of queues the same kind.
    path = f"/apis/visibility.{KUEUE_API}/namespaces/{namespace}/localqueues/{queue}/pendingworkloads"
    try:
        return api.read_raw(path)
    except ApiError as error:
        if error.code not in _NO_VISIBILITY:
            raise
        return None

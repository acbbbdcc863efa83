"""Asks the API server for everything that `state` judges a job by."""

from __future__ import annotations

from collections.abc import Sequence

from infra.spec.manifest import Manifest
from platform_charts.jobs.scheduling import JOB_LABEL
from training.cluster import places
from training.cluster.api import Api
from training.cluster.errors import ApiError
from training.cluster.position import Position, from_summary, from_workloads, is_pending
from training.cluster.state import Observation

_NOT_TOLD = frozenset({403, 404, 503})
"""Kueue's visibility API is not served, or not to this user."""


class JobWatch:
    """One job, looked at again and again.

    Attributes:
        namespace: of the job.
        name: of the job.
    """

    def __init__(self, api: Api, *, namespace: str, name: str) -> None:
        self._api = api
        self.namespace = namespace
        self.name = name

    def observe(self) -> Observation:
        """What is to be known of the job now.

        Raises:
            LostConnectionError: the API server does not answer.
            ApiError: it refuses.
        """
        job = self._api.read(places.job(self.namespace, self.name))
        if job is None:
            return Observation(job=None)
        pods = self._api.items(places.pods(self.namespace), labels=f"{JOB_LABEL}={self.name}")
        workload = workload_of(self._api, job)
        return Observation(
            job=job,
            workload=workload,
            position=None if workload is None else self._place_of(workload),
            pods=pods,
            events=self._events(job, pods),
        )

    def submitter(self) -> Manifest | None:
        """The pod that prints the driver's log, the newest where a job was begun anew; None before there is one."""
        labels = f"{JOB_LABEL}={self.name},batch.kubernetes.io/job-name={self.name}"
        pods = self._api.items(places.pods(self.namespace), labels=labels)
        return max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)

    def _place_of(self, workload: Manifest) -> Position | None:
        return places_of(self._api, self.namespace, [workload]).get(workload["metadata"]["name"])

    def _events(self, job: Manifest, pods: list[Manifest]) -> list[Manifest]:
        """Complaints about the job, its cluster and its pods, also those that are gone; not asked for once the driver runs."""
        status = job.get("status") or {}
        if status.get("jobStatus") or job["spec"].get("suspend"):
            return []
        cluster = status.get("rayClusterName")
        names = {self.name, cluster, *(pod["metadata"]["name"] for pod in pods)}
        of_cluster = f"{cluster}-" if cluster else "/"  # no name has a slash
        return [
            event
            for event in self._api.items(places.events(self.namespace))
            if (about := event["involvedObject"].get("name", "")) in names or about.startswith(of_cluster)
        ]


def workload_of(api: Api, job: Manifest) -> Manifest | None:
    """Kueue's workload of a RayJob; None before there is one."""
    metadata = job["metadata"]
    found = api.items(places.workloads(metadata["namespace"]), labels=places.of_job(metadata["uid"]))
    return found[0] if found else None


def places_of(api: Api, namespace: str, workloads: Sequence[Manifest]) -> dict[str, Position]:
    """Places of those workloads of a namespace that wait for their quota, by name.

    Kueue is asked once for each LocalQueue in which one waits, however many do.
    """
    queues = {one["spec"].get("queueName", "") for one in workloads if is_pending(one)}
    found: dict[str, Position] = {}
    for queue in sorted(queues):
        summary = _pending_in(api, namespace, queue)
        if summary is None:
            everybodys = api.items(places.workloads(namespace))
            found |= from_workloads(one for one in everybodys if one["spec"].get("queueName") == queue)
        else:
            found |= from_summary(summary)
    return found


def _pending_in(api: Api, namespace: str, queue: str) -> Manifest | None:
    """Kueue's own list of a LocalQueue; None where it does not tell."""
    try:
        return api.read(places.pending(namespace, queue))
    except ApiError as error:
        if error.code not in _NOT_TOLD:
            raise
        return None

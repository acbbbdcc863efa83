"""Asks the API server for everything that `state` judges a job by."""

from __future__ import annotations

from platform_charts.jobs.scheduling import JOB_LABEL
from platform_charts.manifest import Manifest
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
            position=None if workload is None else place_of(self._api, workload),
            pods=pods,
            events=self._events(job, pods),
        )

    def submitter(self) -> Manifest | None:
        """The pod that prints the driver's log, the newest where a job was begun anew; None before there is one."""
        labels = f"{JOB_LABEL}={self.name},batch.kubernetes.io/job-name={self.name}"
        pods = self._api.items(places.pods(self.namespace), labels=labels)
        return max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)

    def _events(self, job: Manifest, pods: list[Manifest]) -> list[Manifest]:
        """Complaints about the job, its cluster and its pods; not asked for once the driver runs."""
        status = job.get("status") or {}
        if status.get("jobStatus") or job["spec"].get("suspend"):
            return []
        names = {self.name, status.get("rayClusterName"), *(pod["metadata"]["name"] for pod in pods)}
        return [
            event
            for event in self._api.items(places.events(self.namespace))
            if event["involvedObject"].get("name") in names
        ]


def workload_of(api: Api, job: Manifest) -> Manifest | None:
    """Kueue's workload of a RayJob; None before there is one."""
    metadata = job["metadata"]
    found = api.items(places.workloads(metadata["namespace"]), labels=places.of_job(metadata["uid"]))
    return found[0] if found else None


def place_of(api: Api, workload: Manifest) -> Position | None:
    """Place of a workload in its queue; None where it does not wait."""
    if not is_pending(workload):
        return None
    metadata, queue = workload["metadata"], workload["spec"].get("queueName", "")
    try:
        summary = api.read(places.pending(metadata["namespace"], queue))
    except ApiError as error:
        if error.code not in _NOT_TOLD:
            raise
        summary = None
    if summary is not None:
        return from_summary(summary, metadata["name"])
    same_queue = [
        one for one in api.items(places.workloads(metadata["namespace"])) if one["spec"].get("queueName") == queue
    ]
    return from_workloads(same_queue, metadata["name"])

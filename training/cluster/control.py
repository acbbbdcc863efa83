"""Stops a job with its state saved, and lets a stopped or ended one go on."""

from __future__ import annotations

import time

from infra.spec.manifest import Manifest
from training.cluster import places
from training.cluster.api import Api
from training.cluster.errors import ClusterRefusedError
from training.cluster.watch import workload_of

_POLL_SECONDS = 0.5
_QUEUED_WITHIN = 10.0
_DELETED_WITHIN = 120.0


def stop(api: Api, job: Manifest) -> None:
    """Have Kueue take the job off its nodes.

    That is done by its workload, `spec.active: false`: Kueue suspends the RayJob, KubeRay deletes the job's cluster, and
    the head's preStop hook has the run commit its state before the pod ends. Suspending the RayJob itself would not do,
    because Kueue starts what it has admitted again at once; deleting it would lose its log and its settings.

    Raises:
        ClusterRefusedError: Kueue has no workload for the job, or the user may not change it.
    """
    _set_active(api, _workload(api, job), is_active=False)


def reactivate(api: Api, job: Manifest) -> None:
    """Put a stopped job into the queue again; it goes on from its newest checkpoint. Raises like `stop`."""
    _set_active(api, _workload(api, job), is_active=True)


def remove(api: Api, job: Manifest, settings: str) -> None:
    """Delete a job that is over, and wait until its name and that of its settings are free.

    Raises:
        ClusterRefusedError: they are still there after two minutes.
    """
    metadata = job["metadata"]
    paths = (places.path_of(job), places.config_map(metadata["namespace"], settings))
    api.delete(paths[0], uid=metadata["uid"])
    deadline = time.monotonic() + _DELETED_WITHIN
    while any(api.read(path) is not None for path in paths):
        if time.monotonic() > deadline:
            raise ClusterRefusedError(
                f"job {metadata['name']} is still there {_DELETED_WITHIN:.0f} s after it was deleted",
                remedy="its finalizers wait for an operator: kubectl -n kuberay-system get pods says whether it runs",
            )
        time.sleep(_POLL_SECONDS)


def _workload(api: Api, job: Manifest) -> Manifest:
    deadline = time.monotonic() + _QUEUED_WITHIN
    while True:
        workload = workload_of(api, job)
        if workload is not None:
            return workload
        if time.monotonic() > deadline:
            raise ClusterRefusedError(
                f"Kueue has no workload for job {job['metadata']['name']}, so that it can be neither stopped nor started",
                remedy="kubectl -n kueue-system get pods says whether Kueue runs; it takes a job up within seconds",
            )
        time.sleep(_POLL_SECONDS)


def _set_active(api: Api, workload: Manifest, *, is_active: bool) -> None:
    metadata = workload["metadata"]
    path = places.workload(metadata["namespace"], metadata["name"])
    verb = "resume" if is_active else "stop"
    api.patch(path, {"spec": {"active": is_active}}, doing=f"{verb} {metadata['namespace']}/{metadata['name']}")

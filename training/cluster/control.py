"""Stops a job and saves its state, resumes a job, deletes a job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest, api_object
from training.cluster.objects import CONFIG_MAP
from training.cluster.watch import workload_of

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_POLL_SECONDS = 0.5
_WORKLOAD_SECONDS = 10.0
_DELETION_SECONDS = 120.0


def stop(api: KubernetesApi, job: Manifest) -> None:
    """Have Kueue evict the job.

    Its Workload gets `spec.active: false`: Kueue suspends the RayJob, KubeRay deletes the job's cluster, and the head's
    preStop hook makes the run commit its state before the pod ends. Suspending the RayJob does not work, because
    Kueue unsuspends an admitted job; deleting it loses its log and its settings.

    Raises:
        RefusedError: Kueue has no Workload for the job, or the user may not change it.
    """
    api.patch(_workload(api, job), {"spec": {"active": False}})


def reactivate(api: KubernetesApi, job: Manifest) -> None:
    """Queue a stopped job again; it resumes from its newest checkpoint. Raises like `stop`."""
    api.patch(_workload(api, job), {"spec": {"active": True}})


def remove(api: KubernetesApi, job: Manifest, *config_maps: str) -> None:
    """Delete a job that is over, and wait until the names of the job and its ConfigMaps are free.

    Args:
        api: the cluster.
        job: the RayJob as the API server has it.
        config_maps: their names.

    Raises:
        RefusedError: they still exist after two minutes.
    """
    metadata = job["metadata"]
    api.delete(job, propagation="Foreground")
    owned = (api_object(*CONFIG_MAP, name, namespace=metadata["namespace"]) for name in config_maps)
    objects = (job, *owned)
    deadline = time.monotonic() + _DELETION_SECONDS
    while any(api.read(one) is not None for one in objects):
        if time.monotonic() > deadline:
            raise RefusedError(
                f"job {metadata['name']} still exists {_DELETION_SECONDS:.0f} s after its deletion",
                remedy="its finalizers wait for an operator: kubectl -n kuberay-system get pods shows whether it runs",
            )
        time.sleep(_POLL_SECONDS)


def _workload(api: KubernetesApi, job: Manifest) -> Manifest:
    deadline = time.monotonic() + _WORKLOAD_SECONDS
    while True:
        workload = workload_of(api, job)
        if workload is not None:
            return workload
        if time.monotonic() > deadline:
            raise RefusedError(
                f"Kueue has no Workload for job {job['metadata']['name']}, so it can be neither stopped nor resumed",
                remedy="kubectl -n kueue-system get pods shows whether Kueue runs; it creates the Workload within seconds",
            )
        time.sleep(_POLL_SECONDS)

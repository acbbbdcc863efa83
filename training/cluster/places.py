"""Where the API server keeps what a job consists of."""

from __future__ import annotations

from infra.spec.cluster_names import KUEUE_API
from infra.spec.manifest import Manifest

SUBMITTER_CONTAINER = "ray-job-submitter"
"""Container of the submitter pod that prints the driver's log; KubeRay gives it this name."""

WORKER_CONTAINER = "ray-worker"
"""Container of a worker pod that the ranks are in; see `platform_charts.jobs.pods.worker`."""

_RAY = "/apis/ray.io/v1"
_KUEUE = f"/apis/{KUEUE_API}"
_VISIBILITY = f"/apis/visibility.{KUEUE_API}"
_JOB_UID = "kueue.x-k8s.io/job-uid"


def jobs(namespace: str) -> str:
    """The RayJobs of a namespace."""
    return f"{_RAY}/namespaces/{namespace}/rayjobs"


def job(namespace: str, name: str) -> str:
    """One RayJob."""
    return f"{jobs(namespace)}/{name}"


def config_map(namespace: str, name: str) -> str:
    """One ConfigMap."""
    return f"/api/v1/namespaces/{namespace}/configmaps/{name}"


def pods(namespace: str) -> str:
    """The pods of a namespace."""
    return f"/api/v1/namespaces/{namespace}/pods"


def log(namespace: str, pod: str) -> str:
    """The log of a pod."""
    return f"{pods(namespace)}/{pod}/log"


def events(namespace: str) -> str:
    """The events of a namespace."""
    return f"/api/v1/namespaces/{namespace}/events"


def workloads(namespace: str) -> str:
    """Kueue's workloads of a namespace."""
    return f"{_KUEUE}/namespaces/{namespace}/workloads"


def workload(namespace: str, name: str) -> str:
    """One workload."""
    return f"{workloads(namespace)}/{name}"


def pending(namespace: str, queue: str) -> str:
    """Kueue's own list of what waits in a LocalQueue (Kueue, "Pending workloads on-demand")."""
    return f"{_VISIBILITY}/namespaces/{namespace}/localqueues/{queue}/pendingworkloads"


def of_job(uid: str) -> str:
    """Label selector of the workload of a RayJob."""
    return f"{_JOB_UID}={uid}"


def path_of(manifest: Manifest) -> str:
    """Where one of a job's own objects lies.

    Raises:
        ValueError: it is no RayJob and no ConfigMap, and a job has nothing else.
    """
    kind, metadata = manifest["kind"], manifest["metadata"]
    builders = {"RayJob": job, "ConfigMap": config_map}
    if kind not in builders:
        raise ValueError(f"{kind} is no part of a job; known: {', '.join(builders)}")
    return builders[kind](metadata["namespace"], metadata["name"])

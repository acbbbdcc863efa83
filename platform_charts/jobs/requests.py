"""What a member of the team asks of a job that runs: a file in a ConfigMap that its workers mount, whether it exists or not.

Nobody may run commands in the pods of a job. Members may create ConfigMaps, and the kubelet brings one that appears into the pods that
mount it, within about a minute (`syncFrequency`, by default 1 minute).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.spec.cluster_names import REQUESTS_VARIABLE
from infra.spec.manifest import Manifest, api_object

REQUESTS_PATH = "/etc/training-requests"
"""Mount path in the workers, of which one has rank 0."""

_VOLUME = "requests"


def requests_map(
    job: str, *, namespace: str, labels: Mapping[str, str], owner: Mapping[str, Any], files: Mapping[str, str]
) -> Manifest:
    """The ConfigMap with requests to a job, which is deleted with the job.

    It is not immutable, unlike the job's others: the kubelet stops watching an immutable one, so that another of the same name would
    not reach the pods (Kubernetes, "Immutable ConfigMaps").

    Args:
        job: name of the job.
        namespace: of the job.
        labels: of the object.
        owner: the job, as an owner reference.
        files: the requests, by file name.
    """
    made = api_object("v1", "ConfigMap", requests_name(job), namespace=namespace, labels=dict(labels), data=dict(files))
    return {**made, "metadata": {**made["metadata"], "ownerReferences": [dict(owner)]}}


def requests_name(job: str) -> str:
    """Name of the ConfigMap with requests to a job."""
    return f"{job}-requests"


def with_requests(template: Manifest, job: str) -> Manifest:
    """A pod template whose container sees the requests to its job."""
    spec = template["spec"]
    (container,) = spec["containers"]
    # A folder and no single file: the kubelet does not update a mount of a `subPath`.
    mount = {"name": _VOLUME, "mountPath": REQUESTS_PATH, "readOnly": True}
    seeing = {
        **container,
        "env": [*container["env"], {"name": REQUESTS_VARIABLE, "value": REQUESTS_PATH}],
        "volumeMounts": [*container["volumeMounts"], mount],
    }
    volume = {"name": _VOLUME, "configMap": {"name": requests_name(job), "optional": True}}
    return {**template, "spec": {**spec, "containers": [seeing], "volumes": [*spec["volumes"], volume]}}


def takes_requests(job: Manifest) -> bool:
    """Whether the workers of a RayJob see requests."""
    groups = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    volumes = (volume for group in groups for volume in group["template"]["spec"].get("volumes", ()))
    return any(volume["name"] == _VOLUME for volume in volumes)

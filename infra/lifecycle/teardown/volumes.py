"""Deletes claims that have an EBS volume of their own, while the CSI driver that would delete the volume still runs.

Claims of the platform go with its namespaces, before the driver. Claims elsewhere, which users made, would keep their volumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from infra.kube.api import KubernetesApi
from infra.lifecycle.teardown.deletion import delete_all, describe
from infra.lifecycle.teardown.namespaces import Within, is_within
from infra.spec.cluster_names import PLATFORM_NAMESPACES
from infra.spec.manifest import Manifest

_SECONDS = 120.0


def find_claims(api: KubernetesApi, *, within: Within = None) -> list[Manifest]:
    """Claims, in all namespaces or in some, outside the platform's namespaces whose volume is deleted with them."""
    volumes = {one["metadata"]["name"]: one for one in api.items("v1", "PersistentVolume")}
    return [
        one
        for one in api.items("v1", "PersistentVolumeClaim")
        if one["metadata"]["namespace"] not in PLATFORM_NAMESPACES
        and is_within(one["metadata"]["namespace"], within)
        and _is_deleted_with_claim(one, volumes)
    ]


def find_volumes(api: KubernetesApi, *, within: Within = None) -> list[Manifest]:
    """Volumes that are being deleted, because their claim is gone."""
    return [
        one
        for one in api.items("v1", "PersistentVolume")
        if one.get("status", {}).get("phase") == "Released"
        and one["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        and is_within(one["spec"].get("claimRef", {}).get("namespace", ""), within)
    ]


def delete_claims(
    api: KubernetesApi, *, say: Callable[[str], None], seconds: float = _SECONDS, within: Within = None
) -> None:
    """Delete the claims, and wait until their volumes are gone; those that a pod still uses are named and left.

    Kubernetes keeps a claim while a pod uses it, and who made the pod is not ours to delete. Its volume is then one of those that
    `make leaks` finds.

    Args:
        api: the cluster's API server.
        say: prints a line of progress.
        seconds: how long to wait.
        within: where to delete.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    left = delete_all(api, lambda: find_claims(api, within=within), what="volume claims", say=say, seconds=seconds)
    for one in left:
        pods = ", ".join(_pods_of(api, one)) or "no pod"
        say(f"note: {describe([one])} is still there, used by {pods}: its volume may outlive the cluster")
    going = delete_all(
        api, lambda: find_volumes(api, within=within), what="volumes without a claim", say=say, seconds=seconds
    )
    if going:
        say(f"note: still being deleted, and may outlive the cluster: {describe(going)}")


def _is_deleted_with_claim(claim: Manifest, volumes: Mapping[str, Manifest]) -> bool:
    volume = volumes.get(claim["spec"].get("volumeName", ""))
    return volume is not None and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"


def _pods_of(api: KubernetesApi, claim: Manifest) -> list[str]:
    """Names of the pods that mount a claim."""
    name = claim["metadata"]["name"]
    return [
        pod["metadata"]["name"]
        for pod in api.items("v1", "Pod", namespace=claim["metadata"]["namespace"])
        for volume in pod["spec"].get("volumes") or ()
        if volume.get("persistentVolumeClaim", {}).get("claimName") == name
    ]

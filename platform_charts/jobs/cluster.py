"""The spec of a Ray cluster, for RayJob and RayCluster alike."""

from __future__ import annotations

from dataclasses import dataclass

from infra.spec.manifest import Manifest
from platform_charts.jobs import pods
from platform_charts.jobs.placement import Placement
from platform_charts.jobs.resources import Share

_HEAD = Share(2, 6)
"""GCS, the dashboard's processes and the run's driver; a head that runs out of memory ends the job."""


_AUTOSCALER_RESOURCES = pods.resources_of(Share(1, 1), requests={"cpu": "200m"})

_OBJECT_STORE_PART = 10
_LARGEST_OBJECT_STORE_BYTES = 8 * 2**30
"""Ray reserves 30 % of the memory for objects by default; the trainer's batches do not go through its object store."""

WORKER_GROUP = "workers"


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """How many workers there are, and whether Ray's autoscaler changes that.

    Attributes:
        smallest: smallest number.
        largest: largest number.
        idle_seconds: time after which Ray's autoscaler removes an idle worker; None: the number does not change.
    """

    smallest: int
    largest: int
    idle_seconds: int | None


def ray_cluster_spec(workspace: pods.Workspace, placement: Placement, scaling: Scaling) -> Manifest:
    """A RayClusterSpec of ray.io/v1.

    Clients of the cluster need its token (since Ray 2.52; KubeRay makes a Secret and mounts it in every container).
    """
    is_scaling = scaling.idle_seconds is not None
    template = pods.head(workspace, placement, share=_HEAD, is_scaling=is_scaling)
    workers = {
        "groupName": WORKER_GROUP,
        "replicas": scaling.smallest,
        "minReplicas": scaling.smallest,
        "maxReplicas": scaling.largest,
        "rayStartParams": {
            "num-cpus": str(placement.share.cpus),
            "object-store-memory": _object_store_bytes(placement.share),
        },
        "template": pods.worker(workspace, placement),
    }
    return {
        "rayVersion": workspace.target.release.stack.ray,
        "authOptions": {"mode": "token"},
        **(_autoscaler(scaling.idle_seconds) if scaling.idle_seconds is not None else {}),
        "headGroupSpec": {
            "rayStartParams": {
                # Tasks and actors that ask for a CPU must not run on the head, beside the driver.
                "num-cpus": "0",
                "object-store-memory": _object_store_bytes(_HEAD),
            },
            "template": template,
        },
        "workerGroupSpecs": [workers],
    }


def _autoscaler(idle_seconds: int) -> Manifest:
    """Autoscaler v2. KubeRay gives its container no security context, and no writable folder but the log's."""
    return {
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {
            "version": "v2",
            "idleTimeoutSeconds": idle_seconds,
            "upscalingMode": "Default",
            "resources": _AUTOSCALER_RESOURCES,
            "securityContext": pods.CONTAINER,
            "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108
            "volumeMounts": [pods.TMP_MOUNT],
        },
    }


def _object_store_bytes(share: Share) -> str:
    return str(min(share.memory_gib * 2**30 // _OBJECT_STORE_PART, _LARGEST_OBJECT_STORE_BYTES))

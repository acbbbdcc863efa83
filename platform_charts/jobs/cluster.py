"""The spec of a job's Ray cluster. Only that of an elastic job changes its size, by `platform_charts.images.job_sizer`."""

from __future__ import annotations

import math

from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from platform_charts.jobs import pods
from platform_charts.jobs.placement import Placement
from platform_charts.jobs.price import Wanted, job_price
from platform_charts.jobs.resources import Share, node_share

_HEAD = Share(2, 6)
"""GCS, the dashboard's processes and the run's driver; a head that runs out of memory ends the job."""

_OBJECT_STORE_PART = 10
_LARGEST_OBJECT_STORE_BYTES = 8 * 2**30
"""Ray reserves 30 % of the memory for objects by default; the trainer's batches do not go through its object store."""

WORKER_GROUP = "workers"


def ray_cluster_spec(workspace: pods.Workspace, placement: Placement, *, driver_memory_mib: int) -> Manifest:
    """A RayClusterSpec of ray.io/v1.

    Clients of the cluster need its token (since Ray 2.52; KubeRay makes a Secret and mounts it in every container).

    Args:
        workspace: what all pods have in common.
        placement: where the workers are.
        driver_memory_mib: memory of the head beyond what the driver of a run needs.

    Raises:
        RefusedError: no head node has so much memory.
    """
    head = _head(workspace, driver_memory_mib)
    wanted = Wanted(cpus=pods.HEAD_CPUS, memory_gib=head.memory_gib)
    price = job_price(placement, workspace.target, head=wanted)
    workers = {
        "groupName": WORKER_GROUP,
        # Equal unless the job is elastic, because Kueue counts the first, and KubeRay keeps the number between the others.
        "replicas": placement.pods,
        "minReplicas": placement.pods,
        "maxReplicas": placement.most_pods,
        "rayStartParams": {
            "num-cpus": str(placement.share.cpus - placement.loader_cpus),
            "object-store-memory": _object_store_bytes(placement.share),
        },
        "template": pods.worker(workspace, placement),
    }
    return {
        "rayVersion": workspace.target.release.stack.ray,
        "authOptions": {"mode": "token"},
        "headGroupSpec": {
            "rayStartParams": {
                # Tasks and actors that ask for a CPU must not run on the head, beside the driver.
                "num-cpus": "0",
                "object-store-memory": _object_store_bytes(head),
            },
            "template": pods.head(workspace, placement, share=head, price=price),
        },
        "workerGroupSpecs": [workers],
    }


def _head(workspace: pods.Workspace, driver_memory_mib: int) -> Share:
    head = _HEAD._replace(memory_gib=_HEAD.memory_gib + math.ceil(driver_memory_mib / 1024))
    instance = workspace.target.outputs.head_instance_type
    if not driver_memory_mib or instance is None:
        return head
    room = node_share(instance, catalog=workspace.target.catalog).memory_gib
    if head.memory_gib > room:
        raise RefusedError(
            f"the head of {workspace.name} needs {head.memory_gib} GiB of memory for its {driver_memory_mib} MiB of trials, and a "
            f"head node ({instance}) has room for {room} GiB",
            remedy="lower search.concurrency, or set a larger head_nodes.instance_type in the environment's file",
        )
    return head


def _object_store_bytes(share: Share) -> str:
    return str(min(share.memory_gib * 2**30 // _OBJECT_STORE_PART, _LARGEST_OBJECT_STORE_BYTES))

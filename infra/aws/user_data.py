"""What a node is told at its start, and what the autoscaler is told of a group without nodes: plain text and tags."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

import yaml

from infra.spec.capacity import EFA_HUGE_PAGES_BYTES, LaunchPlan
from infra.spec.outputs import Taint

TEMPLATE_TAG = "k8s.io/cluster-autoscaler/node-template"
"""Beginning of the tags by which the autoscaler imagines a node (cluster-autoscaler, AWS provider, "Scaling from 0")."""

_USABLE_STORAGE = 0.85
"""Part of a disk that pods get: the kubelet keeps a tenth free (nodefs.available), the file system needs some too."""

_BOUNDARY = "==NODECONFIG=="


def node_config(*, max_pods: int, has_raid0: bool, script: str | None = None) -> str:
    """The user data of an AL2023 node, base64: a nodeadm NodeConfig in a MIME document, which EKS puts its own to.

    Args:
        max_pods: largest number of pods; the kubelet's own figure knows nothing of prefix delegation.
        has_raid0: join the instance store disks to one RAID 0 under containerd, the kubelet and pod logs.
        script: shell script that runs before the kubelet starts.
    """
    spec: dict[str, object] = {"kubelet": {"config": {"maxPods": max_pods}}}
    if has_raid0:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    config = yaml.safe_dump(
        {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}, sort_keys=False
    )
    parts = [_part("application/node.eks.aws", config), *([_part("text/x-shellscript", script)] if script else [])]
    head = ("MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"', "")
    document = "\n".join((*head, *parts, f"--{_BOUNDARY}--", ""))
    return base64.b64encode(document.encode()).decode()


def _part(content_type: str, text: str) -> str:
    return "\n".join((f"--{_BOUNDARY}", f"Content-Type: {content_type}", "", text))


def template_tags(
    plan: LaunchPlan, *, labels: Mapping[str, str], taints: Sequence[Taint], disk_gib: int, devices_per_gpu: int
) -> dict[str, str]:
    """Tags of the autoscaling group by which the autoscaler knows what a node would have: it has none to look at.

    EFA in particular: without its tag a pod that asks for EFA fits no imagined node, and the group stays at zero.

    Args:
        plan: how the group gets its machines.
        labels: node labels.
        taints: node taints, those aside that go when the node is ready.
        disk_gib: root volume in GiB, which holds what pods write where no instance store does.
        devices_per_gpu: what the device plugin makes of one GPU.
    """
    resources = {
        "nvidia.com/gpu": plan.instance.gpus * devices_per_gpu,
        "vpc.amazonaws.com/efa": plan.efa_count,
        "hugepages-2Mi": EFA_HUGE_PAGES_BYTES if plan.efa_count else 0,
        "ephemeral-storage": _ephemeral_bytes(plan, disk_gib),
    }
    return {
        **{f"{TEMPLATE_TAG}/label/{key}": value for key, value in labels.items()},
        **{f"{TEMPLATE_TAG}/taint/{taint.key}": f"{taint.value}:{taint.effect}" for taint in taints},
        **{f"{TEMPLATE_TAG}/resources/{name}": str(count) for name, count in resources.items() if count},
    }


def _ephemeral_bytes(plan: LaunchPlan, disk_gib: int) -> int:
    nvme = plan.instance.nvme
    capacity = nvme.disks * nvme.disk_gb * 10**9 if plan.nvme_raid0 and nvme else disk_gib * 2**30
    return int(capacity * _USABLE_STORAGE)

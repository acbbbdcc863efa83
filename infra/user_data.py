"""What a node is told at its start, and what the autoscaler is told of a group without nodes: plain text and tags."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

import yaml

from infra.capacity import LaunchPlan
from infra.outputs import Taint

TEMPLATE_TAG = "k8s.io/cluster-autoscaler/node-template"
"""Beginning of the tags by which the autoscaler imagines a node (cluster-autoscaler, AWS provider, "Scaling from 0")."""

_BOUNDARY = "==NODECONFIG=="


def node_config(*, max_pods: int, has_raid0: bool) -> str:
    """The user data of an AL2023 node, base64: one nodeadm NodeConfig in a MIME document, which EKS puts its own to.

    Args:
        max_pods: largest number of pods; the kubelet's own figure knows nothing of prefix delegation.
        has_raid0: join the instance store disks to one RAID 0 under containerd, the kubelet and pod logs.
    """
    spec: dict[str, object] = {"kubelet": {"config": {"maxPods": max_pods}}}
    if has_raid0:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    config = yaml.safe_dump(
        {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}, sort_keys=False
    )
    document = "\n".join(
        (
            "MIME-Version: 1.0",
            f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"',
            "",
            f"--{_BOUNDARY}",
            "Content-Type: application/node.eks.aws",
            "",
            config,
            f"--{_BOUNDARY}--",
            "",
        )
    )
    return base64.b64encode(document.encode()).decode()


def template_tags(plan: LaunchPlan, *, labels: Mapping[str, str], taints: Sequence[Taint]) -> dict[str, str]:
    """Tags of the autoscaling group by which the autoscaler knows what a node would have: it has none to look at.

    EFA in particular: without its tag a pod that asks for EFA fits no imagined node, and the group stays at zero.
    """
    resources = {"nvidia.com/gpu": plan.instance.gpus, "vpc.amazonaws.com/efa": plan.efa_count}
    return {
        **{f"{TEMPLATE_TAG}/label/{key}": value for key, value in labels.items()},
        **{f"{TEMPLATE_TAG}/taint/{taint.key}": f"{taint.value}:{taint.effect}" for taint in taints},
        **{f"{TEMPLATE_TAG}/resources/{name}": str(count) for name, count in resources.items() if count},
    }

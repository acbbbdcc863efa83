"""User data of a node, and the tags that describe a group without nodes to the autoscaler."""

from __future__ import annotations

import base64

import yaml

from infra.spec.node_group import NodeGroup

TEMPLATE_TAG = "k8s.io/cluster-autoscaler/node-template"
"""Prefix of the tags from which the autoscaler builds its template of a node (cluster-autoscaler, AWS provider, "Scaling from 0")."""

_BOUNDARY = "==NODECONFIG=="


def node_config(*, max_pods: int, has_raid0: bool, script: str | None = None) -> str:
    """The user data of an AL2023 node, base64: a nodeadm NodeConfig in a MIME document, to which EKS adds its own.

    Args:
        max_pods: largest number of pods; the kubelet's own default ignores prefix delegation.
        has_raid0: join the instance store disks to one RAID 0 for containerd, the kubelet and pod logs.
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


def template_tags(group: NodeGroup) -> dict[str, str]:
    """Tags of the autoscaling group from which the autoscaler knows what a node would have while there is none.

    EFA in particular: without its tag a pod that asks for EFA fits no node it could start, and the group stays at zero.
    Start-up taints are left out: they go when the node is ready.
    """
    return {
        **{f"{TEMPLATE_TAG}/label/{key}": value for key, value in group.node_labels.items()},
        **{f"{TEMPLATE_TAG}/taint/{taint.key}": f"{taint.value}:{taint.effect}" for taint in group.taints},
        **{f"{TEMPLATE_TAG}/resources/{name}": str(amount) for name, amount in group.extended_resources.items()},
    }

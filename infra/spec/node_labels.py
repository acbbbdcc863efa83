"""Labels, taints and extended resources of the platform's nodes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from infra.spec.section import Section

LABEL_PREFIX = "ray-train-platform"
"""Prefix of the platform's own labels."""

GROUP_LABEL = f"{LABEL_PREFIX}/group"
"""Node label: name of the node group."""

GPU_MODEL_LABEL = f"{LABEL_PREFIX}/gpu"
"""Node label: GPU model in lower case."""

CAPACITY_LABEL = f"{LABEL_PREFIX}/capacity"
"""Node label of GPU nodes: `capacity.kind` of the settings."""

ACCELERATOR_LABEL = "k8s.amazonaws.com/accelerator"
"""Node label by which the cluster autoscaler recognises a GPU node, and treats it as starting until it advertises its GPUs
(cluster-autoscaler, AWS cloud provider, "GPU nodes")."""

SYSTEM_GROUP = "system"
"""Name of the node group for the platform itself and for Ray heads."""

GPU_RESOURCE = "nvidia.com/gpu"
EFA_RESOURCE = "vpc.amazonaws.com/efa"
HUGE_PAGES_RESOURCE = "hugepages-2Mi"


class Taint(Section):
    """A node taint, as in the Kubernetes API."""

    key: str = Field(description="Key.")
    value: str = Field(description="Value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(description="Effect.")


GPU_TAINT = Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule")
SPOT_TAINT = Taint(key=f"{LABEL_PREFIX}/spot", value="true", effect="NoSchedule")

START_UP_TAINT = Taint(key="startup-taint.cluster-autoscaler.kubernetes.io/gpu", value="not-seen", effect="NoSchedule")
"""Keeps pods off a new GPU node until it advertises its GPUs. No job tolerates it; `platform_charts.images.node_gate` removes it.

The autoscaler treats a node with a taint of this prefix as starting, so it does not launch another node for the same pods
(cluster-autoscaler FAQ, "How does Cluster Autoscaler treat nodes with status/startup/ignore taints?").
"""


def group_selector(group: str) -> dict[str, str]:
    """Node selector of a node group: its group label only, so that other labels may change."""
    return {GROUP_LABEL: group}

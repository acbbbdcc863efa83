"""How Kubernetes knows a node of this platform: its labels, its taints, and the extended resources it offers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from infra.spec.section import Section

LABEL_PREFIX = "ray-train-platform"
"""Prefix of the platform's own labels."""

GROUP_LABEL = f"{LABEL_PREFIX}/group"
"""Label of a node: the name of its node group."""

GPU_MODEL_LABEL = f"{LABEL_PREFIX}/gpu"
"""Label of a node with GPUs: their model in lower case."""

CAPACITY_LABEL = f"{LABEL_PREFIX}/capacity"
"""Label of a node with GPUs: the kind of its capacity, as the settings spell it."""

ACCELERATOR_LABEL = "k8s.amazonaws.com/accelerator"
"""By this label the cluster autoscaler knows a node with GPUs, and counts it as starting until it offers them
(cluster-autoscaler, AWS cloud provider, "GPU nodes")."""

SYSTEM_GROUP = "system"
"""Name of the node group of the platform itself, and of Ray's heads."""

GPU_RESOURCE = "nvidia.com/gpu"
EFA_RESOURCE = "vpc.amazonaws.com/efa"
HUGE_PAGES_RESOURCE = "hugepages-2Mi"


class Taint(Section):
    """A node taint in Kubernetes's spelling."""

    key: str = Field(description="Key.")
    value: str = Field(description="Value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(description="Effect.")


GPU_TAINT = Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule")
SPOT_TAINT = Taint(key=f"{LABEL_PREFIX}/spot", value="true", effect="NoSchedule")

START_UP_TAINT = Taint(key="startup-taint.cluster-autoscaler.kubernetes.io/gpu", value="not-seen", effect="NoSchedule")
"""Keeps pods off a new GPU node until it offers its GPUs. No job tolerates it; `platform_charts.images.node_gate` removes it.

The autoscaler counts a node whose taint has this prefix as still starting, and does not start another one in its place
(cluster-autoscaler FAQ, "How does Cluster Autoscaler treat nodes with status/startup/ignore taints?").
"""


def group_selector(group: str) -> dict[str, str]:
    """Node selector of a node group: one label is enough, and holds when the other labels change."""
    return {GROUP_LABEL: group}

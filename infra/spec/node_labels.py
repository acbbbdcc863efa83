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
"""Node label: GPU model in lower case. Also a label of jobs that name a model instead of a group."""

CAPACITY_LABEL = f"{LABEL_PREFIX}/capacity"
"""Node label of GPU nodes: `capacity.kind` of the settings."""

ACCELERATOR_LABEL = "k8s.amazonaws.com/accelerator"
"""Node label by which the cluster autoscaler recognises a GPU node, and treats it as starting until it advertises its GPUs
(cluster-autoscaler, AWS cloud provider, "GPU nodes")."""

BALANCED_LABEL = f"{LABEL_PREFIX}/balanced"
"""Node label by which the autoscaler balances a group over its zones; GPU nodes lack it, so a job's new nodes are in one zone."""

INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
"""Node label: EC2 instance type."""

HOST_LABEL = "kubernetes.io/hostname"
"""Node label: name of the host."""


def network_layer_label(layer: int) -> str:
    """Node label: the instance's part of a layer of EC2's network, 1 at the top.

    EKS sets as many as EC2 reports (EKS user guide, "Place distributed AI/ML workloads with network topology labels").
    """
    return f"topology.k8s.aws/network-node-layer-{layer}"


SYSTEM_GROUP = "system"
"""Name of the node group for the platform itself."""

HEAD_GROUP = "heads"
"""Name of the node group for the pods of jobs that need no GPU: Ray heads, submitters, ranks on CPUs."""

GPU_RESOURCE = "nvidia.com/gpu"
EFA_RESOURCE = "vpc.amazonaws.com/efa"
HUGE_PAGES_RESOURCE = "hugepages-2Mi"


class Taint(Section):
    """A node taint, as in the Kubernetes API."""

    key: str = Field(description="Key.")
    value: str = Field(description="Value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(description="Effect.")


GPU_TAINT = Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule")
HEAD_TAINT = Taint(key=f"{LABEL_PREFIX}/heads", value="true", effect="NoSchedule")
SPOT_TAINT = Taint(key=f"{LABEL_PREFIX}/spot", value="true", effect="NoSchedule")

START_UP_TAINT = Taint(key="startup-taint.cluster-autoscaler.kubernetes.io/gpu", value="not-seen", effect="NoSchedule")
"""Keeps pods off a new GPU node until it advertises its GPUs. No job tolerates it; `platform_charts.images.node_gate` removes it.

The autoscaler treats a node with a taint of this prefix as starting, so it does not launch another node for the same pods
(cluster-autoscaler FAQ, "How does Cluster Autoscaler treat nodes with status/startup/ignore taints?").
"""

UNHEALTHY_TAINT = Taint(key=f"{LABEL_PREFIX}/unhealthy", value="hardware", effect="NoSchedule")
"""Keeps new pods off a sick GPU node; the value is the reason. `platform_charts.images.node_gate` sets and removes it.

The autoscaler gets its key as a status taint: the node counts as ready, but pending pods need another one (cluster-autoscaler FAQ,
"How does Cluster Autoscaler treat nodes with status/startup/ignore taints?").
"""

NO_CAPACITY_TAINT = Taint(key=f"{LABEL_PREFIX}/no-capacity", value="true", effect="NoSchedule")
"""Taint of a Kueue flavor, never of a node, while AWS has no capacity for its group: jobs that have a choice pass over it.
`platform_charts.images.node_gate.capacity` sets and removes it.
"""

DIAGNOSE_LABEL = f"{LABEL_PREFIX}/diagnose"
"""Node label, by the node gate: the diagnostics have to run on this node. A node in service never has it."""


FAKE_NODE_ANNOTATION = "kwok.x-k8s.io/node"
"""Annotation of the nodes that kwok reports, value `fake`: a sandbox's, where no container runs."""

FAKE_DEVICES_LABEL = f"{LABEL_PREFIX}/fake-devices"
"""Node label of a sandbox's real nodes whose GPUs and EFA interfaces are counted, and do not exist; value `true`."""


def group_selector(group: str) -> dict[str, str]:
    """Node selector of a node group: its group label only, so that other labels may change."""
    return {GROUP_LABEL: group}

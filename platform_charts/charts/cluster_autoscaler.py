"""Values of cluster-autoscaler: GPU groups scale from and to zero, and nodes with a GPU in use are kept."""

from __future__ import annotations

from collections import Counter

from infra.spec.cluster_names import MONITORING_NAMESPACE
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest
from infra.spec.names import PLATFORM_ACCOUNTS, cluster_name, discovery_tags
from infra.spec.node_group import NodeGroups
from infra.spec.node_labels import ACCELERATOR_LABEL, BALANCED_LABEL, UNHEALTHY_TAINT
from infra.spec.settings.stack import StackSettings
from platform_charts.charts.image_names import ImageNames
from platform_charts.container_resources import CONTAINERS
from platform_charts.placement import SYSTEM_NODES

ACCOUNT = PLATFORM_ACCOUNTS["autoscaler"][0]
"""Service account with the autoscaler's IAM role."""


def autoscaler_values(settings: StackSettings, groups: NodeGroups, images: ImageNames) -> Manifest:
    """Values of the chart; the autoscaler discovers node groups by the tags of their Auto Scaling groups."""
    return {
        "cloudProvider": "aws",
        "awsRegion": settings.aws.region,
        "autoDiscovery": _discovery(settings),
        "fullnameOverride": "cluster-autoscaler",
        "image": images["cluster-autoscaler"].repository_and_tag(),
        "replicaCount": 1,
        "rbac": {"serviceAccount": {"create": True, "name": ACCOUNT.name}},
        "nodeSelector": SYSTEM_NODES,
        "resources": CONTAINERS["cluster-autoscaler"].manifest(),
        "securityContext": dict(RESTRICTED_POD),
        "containerSecurityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
        "serviceMonitor": {"enabled": True, "namespace": MONITORING_NAMESPACE, "selector": {}},
        "extraArgs": {
            "logtostderr": True,
            "stderrthreshold": "info",
            "v": 2,
            # Pods go to the best fit; Kueue's flavors decide between groups.
            "expander": "least-waste",
            # The zones of a group without GPUs have equal numbers of nodes. GPU nodes lack the label: a job needs all its
            # nodes in one zone.
            "balance-similar-node-groups": True,
            "balancing-label": BALANCED_LABEL,
            **_gpu_limits(groups),
            "skip-nodes-with-local-storage": False,
            "ignore-daemonsets-utilization": True,
            "scale-down-delay-after-add": "10m",
            "scale-down-unneeded-time": "10m",
            # Keep a node while any of its GPUs is in use; the default drains it below half.
            "scale-down-gpu-utilization-threshold": 0.01,
            # p5 nodes can take longer than the default of 15 minutes to join.
            "max-node-provision-time": "30m",
            # A sick node serves no pending pod, and is not a template of the group's new nodes.
            "status-taint": UNHEALTHY_TAINT.key,
        },
    }


def _discovery(settings: StackSettings) -> Manifest:
    """Values that find the node groups: by default all groups of the cluster, by the tags that EKS gives them.

    Where others use the cluster too, only those that also have the stack's tag (cluster-autoscaler, AWS provider, "Auto-discovery
    setup": `tag` or `tag=value`).
    """
    found: Manifest = {"clusterName": cluster_name(settings)}
    tags = [f"{key}={value}" for key, value in discovery_tags(settings).items()]
    return {**found, "tags": tags} if settings.cluster.is_shared else found


def _gpu_limits(groups: NodeGroups) -> dict[str, str]:
    """The largest number of GPUs by model: any zone may have all nodes of a group, all zones together may not have more.

    The autoscaler counts a model by the accelerator label, and a GPU as often as it is shared. Its help says that the flag
    works on GKE only; its resource limiter is the same for all providers (cluster-autoscaler, core/scaleup/resource).
    The chart cuts a key at its first underscore, so that a flag can be repeated.
    """
    totals: Counter[str] = Counter()
    for group in groups.gpu:
        totals[group.labels[ACCELERATOR_LABEL]] += group.max_size * group.gpu_devices
    return {f"gpu-total_{model}": f"{model}:0:{total}" for model, total in totals.items()}

"""Values of cluster-autoscaler: GPU groups from zero, and back to zero without taking a GPU away that is in use."""

from __future__ import annotations

from infra.spec.cluster_names import MONITORING_NAMESPACE
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest
from infra.spec.names import PLATFORM_ACCOUNTS, cluster_name
from infra.spec.settings.stack import StackSettings
from platform_charts.charts.image_names import ImageNames
from platform_charts.placement import SYSTEM_NODES, resources

ACCOUNT = PLATFORM_ACCOUNTS["autoscaler"][0]
"""The service account that has the autoscaler's role."""


def autoscaler_values(settings: StackSettings, images: ImageNames) -> Manifest:
    """Values of the chart; it finds the groups by the tags that the stack gives their autoscaling groups."""
    return {
        "cloudProvider": "aws",
        "awsRegion": settings.aws.region,
        "autoDiscovery": {"clusterName": cluster_name(settings)},
        "fullnameOverride": "cluster-autoscaler",
        "image": images["cluster-autoscaler"].repository_and_tag(),
        "replicaCount": 1,
        "rbac": {"serviceAccount": {"create": True, "name": ACCOUNT.name}},
        "nodeSelector": SYSTEM_NODES,
        "resources": resources(cpu="100m", memory="768Mi"),
        "securityContext": dict(RESTRICTED_POD),
        "containerSecurityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
        "serviceMonitor": {"enabled": True, "namespace": MONITORING_NAMESPACE, "selector": {}},
        "extraArgs": {
            "logtostderr": True,
            "stderrthreshold": "info",
            "v": 2,
            # A job's pods go to the cheapest fit; priorities between groups are Kueue's flavours.
            "expander": "least-waste",
            # GPU groups differ in zone, price and network; only one of them is what a job was queued for.
            "balance-similar-node-groups": False,
            "skip-nodes-with-local-storage": False,
            "ignore-daemonsets-utilization": True,
            "scale-down-delay-after-add": "10m",
            "scale-down-unneeded-time": "10m",
            # A node with any GPU in use is none to empty, be it one of eight: the default empties it below one half.
            "scale-down-gpu-utilization-threshold": 0.01,
            # p5 nodes have taken longer than the default of 15 minutes to join.
            "max-node-provision-time": "30m",
        },
    }

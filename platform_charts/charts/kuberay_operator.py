"""Values of kuberay-operator."""

from __future__ import annotations

from infra.spec.cluster_names import PLATFORM_PRIORITY
from infra.spec.manifest import Manifest
from platform_charts.charts.image_names import ImageNames
from platform_charts.container_resources import CONTAINERS
from platform_charts.placement import SYSTEM_NODES


def operator_values(images: ImageNames) -> Manifest:
    """Values of the chart: one operator for all namespaces, with leader election."""
    return {
        "image": images["kuberay-operator"].repository_and_tag(),
        "replicas": 2,
        "leaderElectionEnabled": True,
        "reconcileConcurrency": 4,
        "resources": CONTAINERS["kuberay-operator"].manifest(),
        "nodeSelector": SYSTEM_NODES,
        "priorityClassName": PLATFORM_PRIORITY,
        "podSecurityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "metrics": {"enabled": True, "serviceMonitor": {"enabled": True}},
    }

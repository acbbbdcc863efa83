"""Values of kuberay-operator."""

from __future__ import annotations

from infra.spec.cluster_names import PLATFORM_PRIORITY
from infra.spec.manifest import Manifest
from platform_charts.charts.image_names import ImageNames
from platform_charts.placement import SYSTEM_NODES, resources


def operator_values(images: ImageNames) -> Manifest:
    """Values of the operator: one for all namespaces, whose replicas elect a leader.

    Its default memory, 512 Mi, has been too little with some hundred Ray clusters: it caches every pod it watches.
    """
    return {
        "image": images["kuberay-operator"].repository_and_tag(),
        "replicas": 2,
        "leaderElectionEnabled": True,
        "reconcileConcurrency": 4,
        "resources": resources(cpu="200m", memory="1Gi"),
        "nodeSelector": SYSTEM_NODES,
        "priorityClassName": PLATFORM_PRIORITY,
        "podSecurityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "metrics": {"enabled": True, "serviceMonitor": {"enabled": True}},
    }

"""Values of Kueue: controllers and configuration."""

from __future__ import annotations

from infra.spec.cluster_names import MONITORING_NAMESPACE, PLATFORM_PRIORITY, READY_TIMEOUT_MINUTES
from infra.spec.manifest import TEAM_LABEL, Manifest
from infra.spec.manifest_yaml import write_document
from platform_charts.charts.image_names import ImageNames
from platform_charts.container_resources import CONTAINERS
from platform_charts.placement import SYSTEM_NODES

EXCLUDED_RESOURCE_PREFIXES = ("vpc.amazonaws.com/", "hugepages-", "ephemeral-storage")
"""Prefixes of resources without a quota, because they come with a node's GPUs."""


def kueue_values(images: ImageNames) -> Manifest:
    """Values of the chart."""
    return {
        "controllerManager": {
            "replicas": 2,
            "manager": {
                "image": images["kueue"].repository_and_tag() | {"pullPolicy": "IfNotPresent"},
                "resources": CONTAINERS["kueue"].manifest(),
                "priorityClassName": PLATFORM_PRIORITY,
            },
            "nodeSelector": SYSTEM_NODES,
            "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
        },
        "enablePrometheus": True,
        "metrics": {"prometheusNamespace": MONITORING_NAMESPACE},
        "managerConfig": {"controllerManagerConfigYaml": write_document(kueue_configuration())},
    }


def kueue_configuration() -> Manifest:
    """Kueue's Configuration where it differs from the defaults (Kueue, "Configuration API")."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        # With quotas and their use, which the dashboard of queues shows.
        "metrics": {"bindAddress": ":8443", "enableClusterQueueResources": True},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "clientConnection": {"qps": 300, "burst": 500},
        # Every job in a team's namespace is queued, even without a queue name, so that none bypasses the quota.
        "manageJobsWithoutQueueName": True,
        "managedJobsNamespaceSelector": {"matchExpressions": [{"key": TEAM_LABEL, "operator": "Exists"}]},
        # A job's RayCluster is admitted with its RayJob. Teams create no others; an administrator's is queued like a job.
        "integrations": {"frameworks": ["batch/job", "ray.io/rayjob", "ray.io/raycluster"]},
        # All-or-nothing scheduling: a job whose pods are not all ready is evicted and requeued with a backoff.
        "waitForPodsReady": {
            "timeout": f"{READY_TIMEOUT_MINUTES}m",
            "recoveryTimeout": f"{READY_TIMEOUT_MINUTES}m",
            "blockAdmission": False,
            "requeuingStrategy": {
                "timestamp": "Eviction",
                "backoffLimitCount": 5,
                "backoffBaseSeconds": 60,
                "backoffMaxSeconds": 3600,
            },
        },
        "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
        "resources": {"excludeResourcePrefixes": list(EXCLUDED_RESOURCE_PREFIXES)},
    }

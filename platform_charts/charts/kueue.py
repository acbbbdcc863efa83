"""Values of Kueue: its controllers, and the configuration they read."""

from __future__ import annotations

import yaml

from infra.spec.cluster_names import MONITORING_NAMESPACE, PLATFORM_PRIORITY
from infra.spec.manifest import Manifest
from infra.spec.node_labels import LABEL_PREFIX
from platform_charts.charts.image_names import ImageNames
from platform_charts.placement import SYSTEM_NODES, resources

READY_TIMEOUT = "40m"
"""How long an admitted job may take until all of its pods run: a GPU node from nothing, and an image of some GB on it."""

UNCOUNTED = ("vpc.amazonaws.com/", "hugepages-", "ephemeral-storage")
"""Beginnings of resources that no queue has a quota of: they come with a GPU, and nobody has to wait for them alone."""


def kueue_values(images: ImageNames) -> Manifest:
    """Values of the chart."""
    return {
        "controllerManager": {
            "replicas": 2,
            "manager": {
                "image": images["kueue"].repository_and_tag() | {"pullPolicy": "IfNotPresent"},
                "resources": resources(cpu="500m", memory="1Gi"),
                "priorityClassName": PLATFORM_PRIORITY,
            },
            "nodeSelector": SYSTEM_NODES,
            "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
        },
        "enablePrometheus": True,
        "metrics": {"prometheusNamespace": MONITORING_NAMESPACE},
        "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(kueue_configuration(), sort_keys=False)},
    }


def kueue_configuration() -> Manifest:
    """Kueue's Configuration; what is not said here has its default (Kueue, "Configuration API")."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443"},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "clientConnection": {"qps": 300, "burst": 500},
        # A job in a team's namespace is queued whether or not it names a queue: no way leads around the quota.
        "manageJobsWithoutQueueName": True,
        "managedJobsNamespaceSelector": {"matchExpressions": [{"key": f"{LABEL_PREFIX}/team", "operator": "Exists"}]},
        # Not RayClusters: one that scales would wait for ever, because a queue admits what has a fixed size. A team's own
        # counts against the team's ResourceQuota; a job's is admitted with its RayJob.
        "integrations": {"frameworks": ["batch/job", "ray.io/rayjob"]},
        # All pods or none: a job that has half of its workers gives its GPUs back, and queues again, later each time.
        "waitForPodsReady": {
            "timeout": READY_TIMEOUT,
            "recoveryTimeout": READY_TIMEOUT,
            "blockAdmission": False,
            "requeuingStrategy": {
                "timestamp": "Eviction",
                "backoffLimitCount": 5,
                "backoffBaseSeconds": 60,
                "backoffMaxSeconds": 3600,
            },
        },
        "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
        "resources": {"excludeResourcePrefixes": list(UNCOUNTED)},
    }

"""Runs `platform_charts.images.node_gate` on the cluster: GPU nodes stay closed to jobs until all their devices are there.

The scheduler alone would keep a pod off a node without GPUs. But a node whose GPUs are there and whose EFA devices are
not yet looks ready to the autoscaler, which then starts another one for the pod that still waits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from infra.spec.catalog import Catalog
from infra.spec.cluster_names import GPU_NAMESPACE
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, api_object, labels
from infra.spec.names import START_UP_TAINT
from infra.spec.outputs import GROUP_LABEL, gpu_group_output
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.objects.access import cluster_role, rule
from platform_charts.placement import SYSTEM_NODES

_NAME = "node-gate"


def gate_objects(
    settings: StackSettings, release: ReleaseManifest, *, catalog: Catalog, registry: str
) -> tuple[Manifest, ...]:
    """The gate with what it may do; nothing where no group has GPUs.

    Args:
        settings: the environment.
        release: the versions.
        catalog: the instance catalogue.
        registry: host of the stack's ECR.
    """
    if not settings.gpu_groups:
        return ()
    marks = labels(_NAME, version=release.platform)
    subject = {"kind": "ServiceAccount", "name": _NAME, "namespace": GPU_NAMESPACE}
    return (
        api_object("v1", "ServiceAccount", _NAME, namespace=GPU_NAMESPACE, labels=marks),
        *cluster_role(_NAME, (rule("", ("nodes",), ("get", "list", "patch")),), (subject,), labels=marks),
        _deployment(promises(settings, catalog=catalog), release, registry=registry, marks=marks),
    )


def promises(settings: StackSettings, *, catalog: Catalog) -> dict[str, dict[str, int]]:
    """Devices that a node of each GPU group offers when it is complete, by resource."""
    zones = settings.network.availability_zones
    groups = [gpu_group_output(group, catalog=catalog, network_zones=zones) for group in settings.gpu_groups]
    return {
        group.name: {
            "nvidia.com/gpu": group.gpus_per_node,
            **({"vpc.amazonaws.com/efa": group.efa_per_node} if group.efa_per_node else {}),
        }
        for group in groups
    }


def _deployment(
    promised: Mapping[str, Mapping[str, int]], release: ReleaseManifest, *, registry: str, marks: Mapping[str, str]
) -> Manifest:
    container = {
        "name": _NAME,
        "image": release.images["mlflow"].reference(registry),
        "command": ["python", "-m", "node_gate"],
        "args": [
            f"--taint={START_UP_TAINT.key}",
            f"--group-label={GROUP_LABEL}",
            f"--promises={json.dumps(promised, sort_keys=True)}",
        ],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
    }
    pod = {
        "serviceAccountName": _NAME,
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": dict(SYSTEM_NODES),
        "securityContext": dict(RESTRICTED_POD),
        "containers": [container],
    }
    return api_object(
        "apps/v1",
        "Deployment",
        _NAME,
        namespace=GPU_NAMESPACE,
        labels=marks,
        spec={
            "replicas": 1,
            "selector": {"matchLabels": {"app.kubernetes.io/name": _NAME}},
            "template": {"metadata": {"labels": dict(marks)}, "spec": pod},
        },
    )

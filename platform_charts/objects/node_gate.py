"""Runs `platform_charts.images.node_gate` on the cluster: a GPU node takes jobs once it offers all its devices.

The scheduler alone would keep a pod off a node without GPUs. But a node that offers its GPUs and not yet its EFA devices
looks ready to the autoscaler, which then starts another one for the pending pod.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from infra.spec.cluster_names import GPU_NAMESPACE
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, api_object, labels
from infra.spec.node_group import NodeGroup
from infra.spec.node_labels import GROUP_LABEL, START_UP_TAINT
from infra.spec.release import ReleaseManifest
from platform_charts.objects.access import cluster_role, rule
from platform_charts.placement import SYSTEM_NODES

_NAME = "node-gate"


def gate_objects(groups: Sequence[NodeGroup], release: ReleaseManifest, *, registry: str) -> tuple[Manifest, ...]:
    """The gate with what it may do; nothing where no group has GPUs.

    Args:
        groups: the node groups with GPUs.
        release: the versions.
        registry: host of the stack's ECR and the prefix of its repositories.
    """
    if not groups:
        return ()
    common = labels(_NAME, version=release.platform)
    subject = {"kind": "ServiceAccount", "name": _NAME, "namespace": GPU_NAMESPACE}
    devices = {group.name: group.expected_devices for group in groups}
    return (
        api_object("v1", "ServiceAccount", _NAME, namespace=GPU_NAMESPACE, labels=common),
        *cluster_role(_NAME, (rule("", ("nodes",), ("get", "list", "patch")),), (subject,), labels=common),
        _deployment(devices, release, registry=registry, common=common),
    )


def _deployment(
    expected_devices: Mapping[str, Mapping[str, int]],
    release: ReleaseManifest,
    *,
    registry: str,
    common: Mapping[str, str],
) -> Manifest:
    container = {
        "name": _NAME,
        "image": release.images["mlflow"].reference(registry),
        "command": ["python", "-m", "node_gate"],
        "args": [
            f"--taint={START_UP_TAINT.key}",
            f"--group-label={GROUP_LABEL}",
            f"--promises={json.dumps(expected_devices, sort_keys=True)}",
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
        labels=common,
        spec={
            "replicas": 1,
            "selector": {"matchLabels": {"app.kubernetes.io/name": _NAME}},
            "template": {"metadata": {"labels": dict(common)}, "spec": pod},
        },
    )

"""Runs `platform_charts.images.node_gate` on the cluster: a GPU node takes jobs once it has all devices, and while it is healthy.

The scheduler alone would keep a pod off a node without GPUs. But a node that offers its GPUs and not yet its EFA devices
looks ready to the autoscaler, which then starts another one for the pending pod. The gate also closes the Kueue flavors of
groups that AWS has no capacity for; see `platform_charts.images.node_gate.capacity`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from infra.spec.cluster_names import GPU_NAMESPACE, READY_TIMEOUT_MINUTES
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, api_object, labels
from infra.spec.names import PLATFORM_ACCOUNTS
from infra.spec.node_group import NodeGroup
from infra.spec.node_labels import DIAGNOSE_LABEL, GROUP_LABEL, NO_CAPACITY_TAINT, START_UP_TAINT, UNHEALTHY_TAINT
from infra.spec.release import ReleaseManifest
from infra.spec.settings.health import Diagnostics
from platform_charts.objects.access import cluster_role, role, rule
from platform_charts.objects.gpu_diagnostics import DIAGNOSTICS, is_diagnosed
from platform_charts.placement import SYSTEM_NODES

_NAME = "node-gate"

_AUTOSCALER_STATUS = "cluster-autoscaler-status"
"""ConfigMap that the autoscaler writes in its namespace (cluster-autoscaler, flag `status-config-map-name`)."""

_RULES = (
    rule("", ("nodes",), ("list", "patch")),
    rule("kueue.x-k8s.io", ("resourceflavors",), ("get", "patch")),
    # In any namespace, because a Role in kube-system would be the only object of the stack there.
    rule("", ("configmaps",), ("get",), only=(_AUTOSCALER_STATUS,)),
)


def gate_objects(
    groups: Sequence[NodeGroup], release: ReleaseManifest, *, registry: str, diagnostics: Diagnostics
) -> tuple[Manifest, ...]:
    """The gate with what it may do; nothing where no group has GPUs.

    Args:
        groups: the node groups with GPUs.
        release: the versions.
        registry: host of the stack's ECR and the prefix of its repositories.
        diagnostics: what a node has to pass.
    """
    if not groups:
        return ()
    common = labels(_NAME, version=release.platform)
    subject = {"kind": "ServiceAccount", "name": _NAME, "namespace": GPU_NAMESPACE}
    diagnosed = {group.name for group in groups if is_diagnosed(group, diagnostics)}
    fields = {
        group.name: {
            "devices": group.expected_devices,
            "is_diagnosed": group.name in diagnosed,
            "parts": [part.name for part in group.zone_groups],
        }
        for group in groups
    }
    read_pods = role(_NAME, GPU_NAMESPACE, (rule("", ("pods",), ("list",)),), subject, labels=common)
    return (
        api_object("v1", "ServiceAccount", _NAME, namespace=GPU_NAMESPACE, labels=common),
        *cluster_role(_NAME, _RULES, (subject,), labels=common),
        *(read_pods if diagnosed else ()),
        _deployment(fields, release, registry=registry, common=common, has_diagnostics=bool(diagnosed)),
    )


def _deployment(
    groups: Mapping[str, Mapping[str, object]],
    release: ReleaseManifest,
    *,
    registry: str,
    common: Mapping[str, str],
    has_diagnostics: bool,
) -> Manifest:
    container = {
        "name": _NAME,
        "image": release.images["mlflow"].reference(registry),
        "command": ["python", "-m", "node_gate"],
        "args": [
            f"--start-up-taint={START_UP_TAINT.key}",
            f"--unhealthy-taint={UNHEALTHY_TAINT.key}",
            f"--group-label={GROUP_LABEL}",
            f"--diagnose-label={DIAGNOSE_LABEL}",
            f"--no-capacity-taint={NO_CAPACITY_TAINT.key}",
            f"--hold-minutes={READY_TIMEOUT_MINUTES + 10}",
            "--autoscaler-status",
            PLATFORM_ACCOUNTS["autoscaler"][0].namespace,
            _AUTOSCALER_STATUS,
            f"--groups={json.dumps(groups, sort_keys=True)}",
            *(("--diagnostics", GPU_NAMESPACE, DIAGNOSTICS) if has_diagnostics else ()),
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

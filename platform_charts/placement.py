"""Scheduling: operators on system nodes, daemons on the nodes that they serve."""

from __future__ import annotations

from infra.spec.manifest import Manifest
from infra.spec.node_labels import (
    GPU_MODEL_LABEL,
    GPU_TAINT,
    GROUP_LABEL,
    HEAD_TAINT,
    SPOT_TAINT,
    START_UP_TAINT,
    SYSTEM_GROUP,
    UNHEALTHY_TAINT,
    Taint,
    group_selector,
)

SYSTEM_NODES: dict[str, str] = group_selector(SYSTEM_GROUP)
"""Node selector of everything but daemons, so that no operator keeps a GPU node running."""


def gpu_tolerations() -> list[Manifest]:
    """Tolerations of the taints of GPU nodes, for daemons that serve GPUs.

    They include the start-up taint, which stays until the device plugins, themselves daemons, have registered all devices, and
    the taint of a sick node, which the device plugins have to register devices on to make it healthy.
    """
    sick = {"key": UNHEALTHY_TAINT.key, "operator": "Exists", "effect": UNHEALTHY_TAINT.effect}
    return [*(toleration(taint) for taint in (GPU_TAINT, SPOT_TAINT, START_UP_TAINT)), sick]


def tolerations() -> list[Manifest]:
    """Tolerations of all of the platform's own node taints, for daemons that run on every node."""
    return [*gpu_tolerations(), toleration(HEAD_TAINT)]


def gpu_nodes() -> Manifest:
    """Affinity to GPU nodes by the stack's own label, which needs no feature discovery."""
    return _nodes_with(GPU_MODEL_LABEL)


def daemon_affinity(*, is_shared: bool) -> Manifest:
    """Values of a daemon that runs on every node; of a cluster that others use too, on the stack's nodes only."""
    return {"affinity": _nodes_with(GROUP_LABEL)} if is_shared else {}


def _nodes_with(label: str) -> Manifest:
    term = {"matchExpressions": [{"key": label, "operator": "Exists"}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def toleration(taint: Taint) -> Manifest:
    """The toleration of a taint."""
    return {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}

"""Scheduling: operators on system nodes, daemons on the nodes that they serve."""

from __future__ import annotations

from infra.spec.manifest import Manifest
from infra.spec.node_labels import (
    GPU_MODEL_LABEL,
    GPU_TAINT,
    SPOT_TAINT,
    START_UP_TAINT,
    SYSTEM_GROUP,
    Taint,
    group_selector,
)

SYSTEM_NODES: dict[str, str] = group_selector(SYSTEM_GROUP)
"""Node selector of everything but daemons, so that no operator keeps a GPU node running."""


def tolerations() -> list[Manifest]:
    """Tolerations of the platform's own node taints, for daemons.

    They include the start-up taint, which stays until the device plugins, themselves daemons, have registered all devices.
    """
    return [toleration(taint) for taint in (GPU_TAINT, SPOT_TAINT, START_UP_TAINT)]


def gpu_nodes() -> Manifest:
    """Affinity to GPU nodes by the stack's own label, which needs no feature discovery."""
    term = {"matchExpressions": [{"key": GPU_MODEL_LABEL, "operator": "Exists"}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def toleration(taint: Taint) -> Manifest:
    """The toleration of a taint."""
    return {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}

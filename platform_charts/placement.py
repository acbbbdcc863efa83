"""Which nodes pods go to: operators to the system group, daemons to the nodes they serve."""

from __future__ import annotations

from typing import Any

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
"""Node selector of everything that is not a daemon: no GPU node is kept up for an operator."""


def tolerations() -> list[Manifest]:
    """Tolerations of the taints that nodes of ours can have; no others, a daemon has no business on foreign nodes.

    The start-up taint is among them: it goes when the devices are there, and these pods are what makes them be there.
    """
    return [toleration(taint) for taint in (GPU_TAINT, SPOT_TAINT, START_UP_TAINT)]


def gpu_nodes() -> Manifest:
    """Affinity to nodes with GPUs, by the label that the stack gives them before anything has looked at them."""
    term = {"matchExpressions": [{"key": GPU_MODEL_LABEL, "operator": "Exists"}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def resources(*, cpu: str, memory: str) -> dict[str, Any]:
    """Requests of CPU and memory; memory is the limit too, CPU has none: a throttled operator only does its work late."""
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}


def toleration(taint: Taint) -> Manifest:
    """Lets a pod onto nodes with the taint."""
    return {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}

"""Nodes that are about to go, as `ray drain-node` announces them, and room for ranks on the others; of the cluster of `ray.init`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from ray._private import state as ray_state


def draining_nodes() -> dict[str, float]:
    """Unix time at which each node that is being drained goes, by its id; infinite if nobody said."""
    return {node: at / 1000 or math.inf for node, at in ray_state.state.get_draining_nodes().items()}


def room_for(need: Mapping[str, float], *, without: Collection[str]) -> int:
    """How many more ranks fit on the nodes.

    Args:
        need: resources of one rank.
        without: nodes that do not count.
    """
    free = ray_state.state.available_resources_per_node()
    return sum(
        min(int(resources.get(name, 0.0) / amount) for name, amount in need.items())
        for node, resources in free.items()
        if node not in without
    )

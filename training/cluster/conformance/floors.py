"""The least bus bandwidth of an NCCL all-reduce between nodes, by instance type.

A floor tells a network that works from one that does not: EFA that has fallen back to TCP reaches a fraction of it. It is no target. It
is a share of the node's network bandwidth: in a ring between nodes, the bus bandwidth as nccl-tests defines it (doc/PERFORMANCE.md) is
bounded by what a node sends. Tree algorithms may exceed that with two nodes, which only raises what is measured.
"""

from __future__ import annotations

from typing import Final

from infra.spec.catalog import load_catalog

SHARE: Final = 0.5
"""Of the network's bandwidth: low enough for every network that works, and far above one that has fallen back to TCP."""

FAMILIES: Final = frozenset({"p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300"})
"""Families whose GPUs are connected by NVLink.

Other types have no floor: what PCIe and the host's memory let through may be less than what the network does, by how much is not
published."""


def floor_of(instance_type: str) -> float | None:
    """Least bus bandwidth between nodes of a type in bytes per second; None if it has no floor."""
    listed = load_catalog().instances.get(instance_type)
    if listed is None or listed.family not in FAMILIES or listed.network_gbits is None:
        return None
    return listed.network_gbits * 1e9 / 8 * SHARE

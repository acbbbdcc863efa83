"""The least bus bandwidth of an NCCL all-reduce between nodes, by instance type.

A floor tells a network that works from one that does not: EFA that has fallen back to TCP reaches a fraction of it. It is no target. It
is a share of the node's network bandwidth: in a ring between nodes, the bus bandwidth as nccl-tests defines it (doc/PERFORMANCE.md) is
bounded by what a node sends. Tree algorithms may exceed that with two nodes, which only raises what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SHARE: Final = 0.5
"""Of the network's bandwidth: low enough for every network that works, and far above one that has fallen back to TCP."""

NETWORK_GBITS: Final[Mapping[str, int]] = {
    "p4d.24xlarge": 400,
    "p4de.24xlarge": 400,
    "p5.48xlarge": 3200,
    "p5e.48xlarge": 3200,
    "p5en.48xlarge": 3200,
    "p6-b200.48xlarge": 3200,
    "p6-b300.48xlarge": 6400,
}
"""Network bandwidth of a node in Gbit/s (EC2 DescribeInstanceTypes, `NetworkInfo.NetworkPerformance`, as recorded by moto 5.2.5).

Types without an entry have no floor. Their GPUs are not connected by NVLink, and what PCIe and the host's memory let through may be less
than what the network does, by how much is not published."""


def floor_of(instance_type: str) -> float | None:
    """Least bus bandwidth between nodes of a type in bytes per second; None if it has no floor."""
    gbits = NETWORK_GBITS.get(instance_type)
    return None if gbits is None else gbits * 1e9 / 8 * SHARE

"""A Ray cluster of several nodes on this machine: a head without CPUs, and worker nodes with room for one rank each."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Before Ray is imported, which reads it; the drivers inherit it.
os.environ.setdefault("RAY_AUTH_MODE", "disabled")

from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.cluster_utils import Cluster
from ray.core.generated import autoscaler_pb2


class Nodes:
    """The worker nodes, one of which has no rank while a run of as many ranks as there are others trains.

    Attributes:
        address: of the cluster, for `scale.address`.
    """

    def __init__(self, cluster: Cluster, count: int) -> None:
        """Start the worker nodes."""
        self._cluster = cluster
        self._count = count
        self.address = str(cluster.address)
        self.fill()

    def fill(self) -> None:
        """Start nodes in place of those that are gone."""
        while len(self._cluster.worker_nodes) < self._count:
            self._cluster.add_node(num_cpus=1)

    def drain_one(self, *, seconds: float) -> Any:  # noqa: ANN401 - Ray has no types
        """Announce that a node that has a rank goes in some seconds; returns the node.

        Raises:
            RuntimeError: Ray does not drain it.
        """
        free = self._cluster.global_state.available_resources_per_node()
        node = next(one for one in self._cluster.worker_nodes if not free[one.node_id].get("CPU"))
        is_accepted, why = GcsClient(address=self.address).drain_node(
            node.node_id,
            autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION"),
            "the instance is reclaimed",
            int(1000 * (time.time() + seconds)),
        )
        if not is_accepted:
            raise RuntimeError(f"Ray does not drain the node: {why}")
        return node

    def end(self, node: Any) -> None:  # noqa: ANN401 - Ray has no types
        """Kill every process of a node, if it still has some."""
        if node in self._cluster.worker_nodes:
            self._cluster.remove_node(node, allow_graceful=False)


@contextmanager
def cluster_of(count: int) -> Iterator[Nodes]:
    """A cluster with so many worker nodes."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        yield Nodes(cluster, count)
    finally:
        cluster.shutdown()

"""Queue positions, as Kueue's visibility API reports them or, without it, estimated from the Workloads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from infra.spec.manifest import Manifest
from training.cluster.objects import has_condition


@dataclass(frozen=True, kw_only=True)
class QueuePosition:
    """Position of a pending Workload.

    Attributes:
        in_team: position in the team's LocalQueue; 1 is admitted next.
        in_cluster: position in the ClusterQueue, which several teams may share; None if only the team's own Workloads
            can be read.
    """

    in_team: int
    in_cluster: int | None = None

    def __str__(self) -> str:
        return f"{self.in_team}" if self.in_cluster is None else f"{self.in_team} ({self.in_cluster} of all teams)"


def positions_in_summary(summary: Manifest) -> dict[str, QueuePosition]:
    """Positions by Workload, from Kueue's PendingWorkloadsSummary, which counts from 0."""
    return {
        entry["metadata"]["name"]: QueuePosition(
            in_team=entry["positionInLocalQueue"] + 1, in_cluster=entry["positionInClusterQueue"] + 1
        )
        for entry in summary.get("items", ())
    }


def positions_in_workloads(workloads: Iterable[Manifest]) -> dict[str, QueuePosition]:
    """Positions by Workload, estimated from the Workloads of one LocalQueue; only pending ones have a position.

    Kueue orders by priority, then by creation time (Kueue, "Cluster queue", queueingStrategy); for an evicted Workload
    it takes the time of eviction, which this estimate ignores.
    """
    pending = sorted((one for one in workloads if is_pending(one)), key=_rank)
    return {one["metadata"]["name"]: QueuePosition(in_team=place) for place, one in enumerate(pending, start=1)}


def is_pending(workload: Manifest) -> bool:
    """Whether a Workload waits for quota: active, not finished, and no quota reserved."""
    return (
        is_active(workload) and not has_condition(workload, "QuotaReserved") and not has_condition(workload, "Finished")
    )


def is_active(workload: Manifest) -> bool:
    """Whether Kueue may admit it; stopping a job sets `spec.active` to false."""
    return workload.get("spec", {}).get("active", True) is not False


def _rank(workload: Manifest) -> tuple[int, str, str]:
    metadata = workload["metadata"]
    return -workload.get("spec", {}).get("priority", 0), metadata["creationTimestamp"], metadata["name"]

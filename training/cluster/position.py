"""A job's place in the queue, as Kueue tells it or, where its visibility API is not served, as the workloads show it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from infra.spec.manifest import Manifest
from training.cluster.conditions import has_condition


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where a workload stands.

    Attributes:
        in_team: 1 is the next of the team's queue.
        in_cluster: 1 is the next of the cluster queue, which several teams' queues may share; None where only the
            team's own workloads may be read.
    """

    in_team: int
    in_cluster: int | None = None

    def __str__(self) -> str:
        return f"{self.in_team}" if self.in_cluster is None else f"{self.in_team} ({self.in_cluster} of all teams)"


def from_summary(summary: Manifest) -> dict[str, Position]:
    """The places by workload out of Kueue's PendingWorkloadsSummary, which counts from 0."""
    return {
        entry["metadata"]["name"]: Position(
            in_team=entry["positionInLocalQueue"] + 1, in_cluster=entry["positionInClusterQueue"] + 1
        )
        for entry in summary.get("items", ())
    }


def from_workloads(workloads: Iterable[Manifest]) -> dict[str, Position]:
    """The places by workload, out of the workloads of one LocalQueue, of which only the pending ones have one.

    Kueue serves the higher priority first and, within one, the earlier created (Kueue, "Cluster queue",
    queueingStrategy); of a workload that was evicted it takes the time of eviction, which this estimate leaves aside.
    """
    pending = sorted((one for one in workloads if is_pending(one)), key=_rank)
    return {one["metadata"]["name"]: Position(in_team=place) for place, one in enumerate(pending, start=1)}


def is_pending(workload: Manifest) -> bool:
    """Whether it waits for its quota: active, not finished, and none reserved."""
    return (
        is_active(workload) and not has_condition(workload, "QuotaReserved") and not has_condition(workload, "Finished")
    )


def is_active(workload: Manifest) -> bool:
    """Whether Kueue may run it; somebody who stops a job takes that away."""
    return workload.get("spec", {}).get("active", True) is not False


def _rank(workload: Manifest) -> tuple[int, str, str]:
    metadata = workload["metadata"]
    return -workload.get("spec", {}).get("priority", 0), metadata["creationTimestamp"], metadata["name"]

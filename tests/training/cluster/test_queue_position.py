"""Queue positions."""

from __future__ import annotations

from tests.training.cluster.samples import workload
from training.cluster.queue_position import QueuePosition, positions_in_summary, positions_in_workloads


def test_positions_of_the_visibility_api_are_counted_from_one_and_include_all_teams() -> None:
    entry = {"metadata": {"name": "mine"}, "positionInLocalQueue": 0, "positionInClusterQueue": 3}
    assert positions_in_summary({"items": [entry]}) == {"mine": QueuePosition(in_team=1, in_cluster=4)}
    assert (str(QueuePosition(in_team=2)), str(QueuePosition(in_team=2, in_cluster=7))) == ("2", "2 (7 of all teams)")


def test_priority_comes_before_age_and_only_pending_workloads_are_counted() -> None:
    queue = [
        workload("old", created="2026-11-21T08:00:00Z"),
        workload("mine", created="2026-11-21T09:00:00Z", priority=10),
        workload("urgent", created="2026-11-21T10:00:00Z", priority=100),
        workload("runs", priority=100, QuotaReserved="ok"),
        workload("stopped", priority=100, active=False),
        workload("over", priority=100, Finished="ok"),
    ]
    assert positions_in_workloads(queue) == {
        "urgent": QueuePosition(in_team=1),
        "mine": QueuePosition(in_team=2),
        "old": QueuePosition(in_team=3),
    }

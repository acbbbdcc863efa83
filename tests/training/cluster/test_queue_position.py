"""Queue positions."""

from __future__ import annotations

from tests.training.cluster.samples import workload
from training.cluster.queue_position import QueuePosition, positions_in_summary, positions_in_workloads


def test_positions_of_the_visibility_api_are_counted_from_one() -> None:
    entry = {"metadata": {"name": "mine"}, "positionInLocalQueue": 0, "positionInClusterQueue": 3}
    assert positions_in_summary({"items": [entry]}) == {"mine": QueuePosition(in_team=1, in_cluster=4)}


def test_priority_comes_before_age() -> None:
    queue = [
        workload("old", created="2026-11-21T08:00:00Z"),
        workload("mine", created="2026-11-21T09:00:00Z", priority=10),
        workload("urgent", created="2026-11-21T10:00:00Z", priority=100),
    ]
    assert positions_in_workloads(queue)["mine"] == QueuePosition(in_team=2)


def test_workloads_that_are_not_pending_are_not_counted() -> None:
    queue = [
        workload("runs", QuotaReserved="ok"),
        workload("stopped", active=False),
        workload("over", Finished="ok"),
        workload("mine", created="2026-11-21T09:00:00Z"),
    ]
    assert positions_in_workloads(queue) == {"mine": QueuePosition(in_team=1)}


def test_a_position_includes_that_among_all_teams_if_known() -> None:
    assert (str(QueuePosition(in_team=2)), str(QueuePosition(in_team=2, in_cluster=7))) == ("2", "2 (7 of all teams)")

"""The place in the queue."""

from __future__ import annotations

from tests.training.cluster.samples import workload
from training.cluster.position import Position, from_summary, from_workloads


def test_kueues_places_are_counted_from_one() -> None:
    entry = {"metadata": {"name": "mine"}, "positionInLocalQueue": 0, "positionInClusterQueue": 3}
    assert from_summary({"items": [entry]}) == {"mine": Position(in_team=1, in_cluster=4)}


def test_priority_comes_before_age() -> None:
    queue = [
        workload("old", created="2026-11-21T08:00:00Z"),
        workload("mine", created="2026-11-21T09:00:00Z", priority=10),
        workload("urgent", created="2026-11-21T10:00:00Z", priority=100),
    ]
    assert from_workloads(queue)["mine"] == Position(in_team=2)


def test_workloads_that_do_not_wait_are_not_counted() -> None:
    queue = [
        workload("runs", QuotaReserved="ok"),
        workload("stopped", active=False),
        workload("over", Finished="ok"),
        workload("mine", created="2026-11-21T09:00:00Z"),
    ]
    assert from_workloads(queue) == {"mine": Position(in_team=1)}


def test_a_place_says_the_other_teams_only_where_they_are_known() -> None:
    assert (str(Position(in_team=2)), str(Position(in_team=2, in_cluster=7))) == ("2", "2 (7 of all teams)")

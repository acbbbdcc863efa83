"""Queue positions, and which Workload of a job counts."""

from __future__ import annotations

from infra.spec.manifest import Manifest
from tests.training.cluster.samples import workload
from training.cluster.objects import current_workload
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


def _slice(name: str, hour: int, *conditions: str) -> Manifest:
    made = workload(name, created=f"2026-11-21T{hour:02}:00:00Z")
    return {**made, "status": {"conditions": [{"type": kind, "status": "True"} for kind in conditions]}}


HELD = ("QuotaReserved", "Admitted")
DONE = (*HELD, "Finished")


def test_the_workload_of_an_elastic_job_is_the_one_that_holds_its_quota() -> None:
    for workloads, expected, why in (
        ([_slice("first", 1)], "first", "the only one"),
        ([_slice("new", 2, *HELD), _slice("old", 1, *DONE)], "new", "not one that was replaced"),
        ([_slice("asked", 2), _slice("held", 1, *HELD)], "held", "not what the job asks for"),
        ([_slice("old", 1, *HELD), _slice("new", 2, *HELD)], "new", "the newest that holds quota"),
        ([_slice("old", 1, *DONE), _slice("new", 2, *DONE)], "new", "the last of a job that is over"),
    ):
        found = current_workload(workloads)
        assert found is not None
        assert found["metadata"]["name"] == expected, why
    assert current_workload([]) is None

"""Which Workload of a job counts."""

from __future__ import annotations

from infra.spec.manifest import Manifest
from tests.training.cluster.samples import workload
from training.cluster.objects import current_workload


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

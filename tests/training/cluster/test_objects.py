"""Which Workload of a job counts."""

from __future__ import annotations

import pytest

from infra.spec.manifest import Manifest
from tests.training.cluster.samples import workload
from training.cluster.objects import current_workload


def _slice(name: str, hour: int, *conditions: str) -> Manifest:
    made = workload(name, created=f"2026-11-21T{hour:02}:00:00Z")
    return {**made, "status": {"conditions": [{"type": kind, "status": "True"} for kind in conditions]}}


HELD = ("QuotaReserved", "Admitted")
DONE = (*HELD, "Finished")


@pytest.mark.parametrize(
    ("workloads", "expected"),
    [
        pytest.param([_slice("first", 1)], "first", id="the only one"),
        pytest.param([_slice("new", 2, *HELD), _slice("old", 1, *DONE)], "new", id="not one that was replaced"),
        pytest.param([_slice("asked", 2), _slice("held", 1, *HELD)], "held", id="not what the job asks for"),
        pytest.param([_slice("old", 1, *HELD), _slice("new", 2, *HELD)], "new", id="the newest that holds quota"),
        pytest.param([_slice("old", 1, *DONE), _slice("new", 2, *DONE)], "new", id="the last of a job that is over"),
    ],
)
def test_the_workload_of_an_elastic_job_is_the_one_that_holds_its_quota(
    workloads: list[Manifest], expected: str
) -> None:
    found = current_workload(workloads)
    assert found is not None
    assert found["metadata"]["name"] == expected


def test_a_job_that_kueue_has_not_seen_has_none() -> None:
    assert current_workload([]) is None

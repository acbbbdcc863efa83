"""What an occurrence of a schedule submits."""

from __future__ import annotations

from typing import Any

import pytest

from platform_charts.images.job_schedule.occurrence import Concurrency, beyond_history, named, occurrence_name, plan

NAME = "nightly-20261122-0200"
DUE = 29_921_880  # minutes from 1970 to 2026-11-22 02:00 UTC, with which the CronJob names its Job


def job(name: str, status: str = "Running", *, hour: int = 0) -> dict[str, Any]:
    created = f"2026-11-21T{hour:02d}:00:00Z"
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": created}
    return {"metadata": metadata, "status": {"jobDeploymentStatus": status}}


def workload(of: str, *, active: bool) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": [{"uid": f"uid-{of}"}]}, "spec": {"active": active}}


def test_an_occurrence_has_the_time_at_which_it_was_due_and_is_of_its_schedule() -> None:
    assert occurrence_name("nightly", f"nightly-{DUE}") == NAME
    for name in ("nightly", "nightly-", "nightly-by-hand", "other-29737560", "nightly-29737560-x"):
        with pytest.raises(ValueError, match="is not NAME-MINUTES of schedule nightly"):
            occurrence_name("nightly", name)


def test_the_template_gets_the_occurrences_name_everywhere() -> None:
    template = '[{"metadata": {"name": "a-00000000-0000"}, "spec": {"entrypoint": "x --name a-00000000-0000"}}]'
    assert named(template, "a-00000000-0000", "a-1") == [
        {"metadata": {"name": "a-1"}, "spec": {"entrypoint": "x --name a-1"}}
    ]


def test_the_rule_decides_while_an_earlier_job_runs_and_what_has_ended_holds_up_nothing() -> None:
    ended = [job("done", "Complete"), job("failed", "Failed"), job("stopped", "Suspended")]
    workloads = [workload("stopped", active=False), workload("done", active=True)]
    rules: dict[Concurrency, tuple[bool, list[str]]] = {
        "forbid": (False, []),
        "replace": (True, ["earlier"]),
        "allow": (True, []),
    }
    for rule, expected in rules.items():
        found = plan(rule, NAME, [job("earlier"), job("before", "Complete")], [])
        assert (found.submits, [one["metadata"]["name"] for one in found.stops]) == expected
        assert plan(rule, NAME, ended, workloads) == (True, ())
        assert plan(rule, NAME, [job(NAME)], []) == (False, ()), "one that exists is not submitted or stopped again"


def test_a_job_that_waits_in_the_queue_has_not_ended() -> None:
    assert not plan("forbid", NAME, [job("queued", "Suspended")], [workload("queued", active=True)]).submits
    assert not plan("forbid", NAME, [{"metadata": {"name": "new", "uid": "new"}}], []).submits


def test_the_newest_ended_jobs_are_kept_and_those_that_run_are_not_counted() -> None:
    ended = [job(f"ended-{hour}", "Complete", hour=hour) for hour in (3, 1, 2)]
    old = beyond_history([*ended, job("running", hour=0)], keep=1)
    assert [one["metadata"]["name"] for one in old] == ["ended-2", "ended-1"]

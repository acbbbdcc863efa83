"""The calendar: windows, jobs of ours and of teams, where they go in a window, gaps; as lines, as a picture and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.kube.api import KubernetesApi
from infra.lifecycle.capacity.calendar import Calendar, calendar_of
from infra.lifecycle.capacity.cluster_jobs import cluster_jobs, job_of
from infra.lifecycle.capacity.document import calendar_document
from infra.lifecycle.capacity.offers import Reserved
from infra.lifecycle.capacity.picture import write_picture
from infra.lifecycle.capacity.placing import Job, place
from infra.lifecycle.capacity.timeline import LATE, RUNS, WAITS, WINDOW, findings, time_line
from infra.lifecycle.capacity.timeline import NOW as NOW_MARK
from infra.lifecycle.capacity.windows import Window, windows_of
from infra.spec.capacity import BLOCK_RECLAIM
from infra.spec.catalog import load_catalog
from infra.spec.manifest import Manifest
from infra.spec.node_labels import GROUP_LABEL
from tests.infra.lifecycle.capacity.samples import BLOCK_ID, HOUR, NOW, RESERVATION_ID, block, reserved, settings

CAPACITY = {"kind": "capacity_block", "id": BLOCK_ID, "availability_zone": "us-east-1a", "ends": "2026-11-26T12:00:00Z"}
IN_BLOCK = {"gpu_groups.1.capacity": CAPACITY, "gpu_groups.1.placement": "none"}
ENDS = NOW + 72 * HOUR


def job(name: str = "first", **fields: Any) -> Job:  # noqa: ANN401 - of the dataclass
    """A job that waits for the block's group, with a deadline of a day."""
    sample = {"team": "research", "groups": ("h100",), "state": "waits", "nodes": 1, "gpus": 8, "since": None}
    return Job(**{"name": name, "deadline": 24 * HOUR, **sample, **fields})


def calendar(*jobs: Job, found: tuple[Reserved, ...] = (block(),), unknown: str = "") -> Calendar:
    """The calendar of the sample, whose group h100 is in the block."""
    windows = windows_of(settings(IN_BLOCK).gpu_groups, found, region="us-east-1", catalog=load_catalog())
    return calendar_of(windows, jobs, now=NOW, jobs_unknown=unknown)


def test_a_block_is_the_window_of_its_group_and_other_capacity_of_its_type_is_without_a_group() -> None:
    (window,) = calendar().windows
    assert (window.group, window.starts, window.ends) == ("h100", NOW + 24 * HOUR, ENDS)
    assert window.nodes_until == ENDS - BLOCK_RECLAIM
    assert window.problems == ()
    other = reserved(id="cr-0000000000000000e", instance_type="p4d.24xlarge")
    windows = calendar(found=(block(), reserved(), other)).windows
    assert {one.id: one.group for one in windows} == {BLOCK_ID: "h100", RESERVATION_ID: ""}


def test_what_differs_from_the_settings_is_a_problem() -> None:
    said_of: dict[str, tuple[Reserved, ...]] = {
        "is not in this account in us-east-1: it has ended, or was never bought": (),
        "holds 1 instances, max_size of h100 is 2": (block(total=1),),
        "is for p4d.24xlarge, h100 has p5.48xlarge": (block(instance_type="p4d.24xlarge"),),
        "is in us-east-1b, the settings of h100 say us-east-1a": (block(zone="us-east-1b"),),
        "ends at 2026-11-27 12:00 UTC, the settings of h100 say 2026-11-26 12:00 UTC": (block(ends=ENDS + 24 * HOUR),),
    }
    for said, found in said_of.items():
        (problem,) = calendar(found=found).windows[0].problems
        assert said in problem


def test_a_job_fits_if_it_ends_before_the_nodes_go() -> None:
    for beyond in (timedelta(0), timedelta(seconds=1)):
        (fit,) = calendar(job(deadline=48 * HOUR - BLOCK_RECLAIM + beyond)).fits
        assert (fit.starts, fit.fits) == (NOW + 24 * HOUR, not beyond)
    running = block(state="active", starts=NOW - 24 * HOUR, ends=NOW + 24 * HOUR)
    short, long = job(state="runs", since=NOW - 6 * HOUR), job("long", state="runs", since=NOW, deadline=25 * HOUR)
    assert {one.job.name: one.fits for one in calendar(short, long, found=(running,)).fits} == {
        "first": True,
        "long": False,
    }
    (fit,) = calendar(job(), found=(block(state="payment-failed"),)).fits
    assert not fit.fits, "the capacity may never come"
    assert calendar(job(groups=("t4",))).fits == (), "jobs of other groups are not in the calendar"
    assert len(calendar(job(groups=("t4", "h100"))).fits) == 1


def test_gaps_are_between_now_and_the_last_end_by_type() -> None:
    later = reserved(id="cr-0000000000000000e", state="scheduled", starts=NOW + 96 * HOUR, ends=NOW + 120 * HOUR)
    gaps = [(one.starts, one.ends) for one in calendar(found=(block(), later)).gaps]
    assert gaps == [(NOW, NOW + 24 * HOUR), (ENDS - BLOCK_RECLAIM, NOW + 96 * HOUR)]
    assert calendar(found=(reserved(), block())).gaps == ()


def test_the_time_line_shows_windows_jobs_what_is_late_and_the_present() -> None:
    running = block(state="active", starts=NOW - 12 * HOUR, ends=NOW + 36 * HOUR)
    jobs = job("runs", state="runs", since=NOW - 6 * HOUR), job("late", deadline=48 * HOUR)
    lines = list(time_line(calendar(*jobs, found=(running,))))
    bar, late, runs = lines[1].split(maxsplit=1), lines[3].split(maxsplit=1), lines[2].split(maxsplit=1)
    assert bar[0] == "h100"
    assert set(bar[1]) == {WINDOW}
    assert (runs[0], set(runs[1])) == ("research/runs", {RUNS})
    assert late[0] == "research/late"
    assert set(late[1]) == {WAITS, LATE}
    assert late[1].index(LATE) == late[1].rindex(WAITS) + 1
    assert lines[0].split() == ["Nov", "24", "Nov", "25"]
    unreserved = list(time_line(calendar()))[1]
    assert unreserved.index(NOW_MARK) < unreserved.index(WINDOW)


def test_the_findings_name_jobs_that_do_not_fit_gaps_and_unknown_jobs() -> None:
    said = list(findings(calendar(job("late", deadline=72 * HOUR))))
    assert said == [
        (
            "does not fit: job research/late waits and may run until 2026-11-27 12:00 UTC; its nodes would go at "
            "2026-11-26 11:20 UTC: it saves, and waits for other nodes"
        ),
        "gap: no reserved p5.48xlarge from 2026-11-23 12:00 UTC to 2026-11-24 12:00 UTC",
    ]
    assert "jobs: not known: no cluster" in findings(calendar(unknown="no cluster"))
    assert "jobs: none runs or waits in these groups" in findings(calendar())
    spare = calendar(found=(block(), reserved()))
    assert f"{RESERVATION_ID} (4 x p5.48xlarge) is used by no group of the environment" in findings(spare)
    assert f"{BLOCK_ID} is delayed: it may never have nodes" in findings(calendar(found=(block(state="delayed"),)))


@pytest.mark.parametrize("suffix", [".svg", ".html", ".png"])
def test_the_picture_names_windows_and_jobs_and_is_the_same_each_time(tmp_path: Path, suffix: str) -> None:
    drawn = calendar(job("late <1>", deadline=72 * HOUR), job("fits", state="runs", since=NOW))
    files = [tmp_path / f"{name}{suffix}" for name in ("a", "b")]
    for file in files:
        write_picture(drawn, file, environment="dev")
    first, second = (file.read_bytes() for file in files)
    assert first == second
    if suffix == ".svg":
        assert ET.fromstring(first).tag.rpartition("}")[2] == "svg"  # noqa: S314 - our own
        labels = ("h100", "research/fits  8 GPUs", BLOCK_ID + ", us-east-1a")
        assert all(f"<!-- {label} -->".encode() in first for label in labels)
        write_picture(calendar_of((), (), now=NOW), files[0], environment="dev")  # an empty one
    if suffix == ".html":
        assert b"<svg" in first
        assert b"job research/late &lt;1&gt; waits" in first
        assert b"src=" not in first


def test_the_document_has_times_in_utc_and_says_whether_jobs_are_known() -> None:
    found = calendar_document(calendar(job()), environment="dev")
    (window,) = json.loads(json.dumps(found))["windows"]
    assert (window["from"], window["nodes_until"]) == ("2026-11-24T12:00:00Z", "2026-11-26T11:20:00Z")
    assert [(one["name"], one["fits"], one["latest_end"]) for one in window["jobs"]] == [
        ("first", True, "2026-11-25T12:00:00Z")
    ]
    assert found["jobs_known"] is True
    assert calendar_document(calendar(unknown="x"), environment="dev")["jobs_unknown_because"] == "x"


(BLOCK,) = calendar().windows
"""Two nodes with 16 GPUs, from tomorrow on, for 47 hours and 20 minutes."""

START = NOW + 24 * HOUR


def starts(*jobs: Job, window: Window = BLOCK) -> dict[str, timedelta | None]:
    """Hours after the window's start at which each job begins; None: it never has nodes."""
    return {
        one.job.name: None if one.nodes_until == one.starts else one.starts - START
        for one in place(window, jobs, now=NOW)
    }


def test_jobs_that_fit_together_begin_together_and_the_next_one_when_the_first_has_to_end() -> None:
    waiting = [job("a", deadline=6 * HOUR), job("b", deadline=9 * HOUR), job("c", deadline=2 * HOUR)]
    assert starts(*waiting) == {"a": 0 * HOUR, "b": 0 * HOUR, "c": 6 * HOUR}


def test_a_small_job_passes_a_large_one_only_if_it_does_not_delay_it() -> None:
    running = replace(BLOCK, state="active", starts=START - HOUR)
    first = job("runs", state="runs", since=START - HOUR, deadline=5 * HOUR)
    large = job("large", gpus=16, deadline=10 * HOUR)
    short, long = job("short", deadline=3 * HOUR), job("long", deadline=6 * HOUR)
    found = {one.job.name: one.starts for one in place(running, [first, large, short, long], now=START)}
    assert found == {"runs": START - HOUR, "short": START, "large": START + 4 * HOUR, "long": START + 14 * HOUR}


def test_a_job_that_would_begin_too_late_or_is_larger_than_the_block_does_not_fit() -> None:
    before = [job("a", gpus=16, deadline=24 * HOUR), job("b", gpus=16, deadline=30 * HOUR)]
    a, b = place(BLOCK, before, now=NOW)
    assert a.fits
    assert b.starts == START + 24 * HOUR
    assert b.problem == "its nodes would go at 2026-11-26 11:20 UTC: it saves, and waits for other nodes"
    large, small = job("large", gpus=24), job("small", gpus=16)
    assert starts(large, small) == {"large": None, "small": 0 * HOUR}
    (found,) = place(BLOCK, [large], now=NOW)
    assert found.problem == "it needs 24 GPUs, cr-00000000000000abc has 16"


def test_a_job_without_a_deadline_keeps_its_gpus_from_those_after_it() -> None:
    endless = job("endless", gpus=16, deadline=None)
    first, second = place(BLOCK, [endless, job("next")], now=NOW)
    assert (first.job.name, first.ends) == ("endless", None)
    assert "its nodes would go" in first.problem
    assert second.problem == "jobs without a deadline may keep the GPUs"
    lasting = replace(BLOCK, kind="reservation", state="active", ends=None)
    assert place(lasting, [endless], now=NOW)[0].fits


def test_a_job_that_runs_beyond_its_deadline_still_holds_its_gpus_now() -> None:
    running = replace(BLOCK, state="active", starts=NOW - 10 * HOUR)
    over = job("over", state="runs", since=NOW - 9 * HOUR, deadline=HOUR, gpus=16)
    assert [one.job.name for one in place(running, [over, job("next")], now=NOW) if one.fits] == ["over", "next"]


JOBS = st.lists(
    st.builds(
        lambda number, gpus, hours: job(f"j{number}", gpus=gpus, deadline=hours * HOUR),
        st.integers(),
        st.integers(1, 20),
        st.integers(1, 30),
    ),
    max_size=8,
)


@given(JOBS)
def test_no_more_gpus_are_promised_than_there_are_and_no_job_delays_one_before_it(waiting: list[Job]) -> None:
    placed = [one for one in place(BLOCK, waiting, now=NOW) if one.nodes_until != one.starts]
    for moment in (one.starts for one in placed):
        running = [one for one in placed if one.ends is not None and one.starts <= moment < one.ends]
        assert sum(one.job.gpus for one in running) <= BLOCK.gpus
    alone = place(BLOCK, waiting[:-1], now=NOW)
    everybody = {id(one.job): one.starts for one in place(BLOCK, waiting, now=NOW)}
    assert all(everybody[id(one.job)] == one.starts for one in alone)


def workers(pod: Manifest | None = None, *, name: str = "workers", gpus: int = 8, **fields: Any) -> Manifest:  # noqa: ANN401 - of KubeRay
    container = {"name": "ray", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "groupName": name,
        "replicas": 2,
        "template": {"spec": {"containers": [container], **(pod or {})}},
        **fields,
    }


def rayjob(*groups: Manifest, name: str = "first", **spec: Any) -> Manifest:  # noqa: ANN401 - of KubeRay
    metadata = {"namespace": "research", "name": name, "uid": name, "creationTimestamp": "2026-11-23T10:00:00Z"}
    cluster = {"rayClusterSpec": {"workerGroupSpecs": list(groups)}}
    return {"metadata": metadata, "spec": {"activeDeadlineSeconds": 3600, **cluster, **spec}}


def workload(job: str = "first", **fields: Any) -> Manifest:  # noqa: ANN401 - of Kueue
    return {"metadata": {"ownerReferences": [{"uid": job}]}, "spec": {}, **fields}


def on(*groups: str) -> Manifest:
    expression = {"key": GROUP_LABEL, "operator": "In", "values": list(groups)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


class Jobs:
    """An API server with these objects."""

    def __init__(self, **kinds: list[Manifest]) -> None:
        self._kinds = kinds

    def items_if_served(self, _: str, kind: str) -> list[Manifest]:
        return self._kinds.get(kind, [])


def test_a_job_that_waits_may_use_the_groups_that_it_names_and_has_gpus_per_pod() -> None:
    found = job_of(rayjob(workers(on("reserved", "spot"))), None)
    assert (found.groups, found.state, found.nodes, found.gpus) == (("reserved", "spot"), "waits", 2, 16)
    assert job_of(rayjob(workers({"nodeSelector": {GROUP_LABEL: "h100"}})), None).groups == ("h100",)


def test_an_admitted_job_has_the_group_of_its_workers_not_that_of_its_head() -> None:
    assigned = [
        {"name": "head", "flavors": {"cpu": "heads"}},
        {"name": "workers", "flavors": {"cpu": "h100", "gpu": "h100"}},
    ]
    conditions = [{"type": "Admitted", "status": "True", "lastTransitionTime": "2026-11-23T11:00:00Z"}]
    status = {"admission": {"podSetAssignments": assigned}, "conditions": conditions}
    found = job_of(rayjob(workers(on("h100", "spot"))), workload(status=status))
    assert (found.groups, found.state) == (("h100",), "runs")
    assert (found.since, found.deadline) == (datetime(2026, 11, 23, 11, tzinfo=UTC), timedelta(hours=1))


def test_a_job_that_names_no_group_is_in_none() -> None:
    empty: Manifest = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
    other = {**rayjob(), "spec": {"clusterSelector": {"ray.io/cluster": "other"}}}
    for job in (rayjob(workers()), rayjob(), other, rayjob(workers({"affinity": empty}))):
        assert job_of(job, None).groups == (), job


def test_a_job_of_a_team_s_own_may_have_several_worker_groups_and_no_deadline() -> None:
    own = rayjob(workers(on("h100"), name="Actors"), workers(on("spot"), name="learners", gpus=1))
    del own["spec"]["activeDeadlineSeconds"]
    found = job_of(own, None)
    assert (found.groups, found.nodes, found.gpus, found.deadline) == (("h100", "spot"), 4, 18, None)
    status = {"admission": {"podSetAssignments": [{"name": "actors", "flavors": {"cpu": "h100"}}]}}
    assert job_of(own, workload(status=status)).groups == ("h100",)


def test_jobs_are_in_the_order_of_the_queue_without_those_that_have_ended_or_are_stopped() -> None:
    ended = {**rayjob(name="ended"), "status": {"jobDeploymentStatus": "Complete"}}
    young = rayjob(name="young")
    young["metadata"]["creationTimestamp"] = "2026-11-23T11:00:00Z"
    jobs = [young, rayjob(name="old"), rayjob(name="urgent"), rayjob(name="stopped"), ended]
    workloads = [workload("urgent", spec={"priority": 3000}), workload("old", spec={"priority": 2000})]
    workloads += [workload("young", spec={"priority": 2000}), workload("stopped", spec={"active": False})]
    found = cluster_jobs(cast("KubernetesApi", Jobs(RayJob=jobs, Workload=workloads)))
    assert [one.name for one in found] == ["urgent", "old", "young"]

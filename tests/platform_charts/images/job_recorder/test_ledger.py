"""Which objects belong to which job, and when its record is written and complete."""

from __future__ import annotations

from infra.spec.node_labels import CAPACITY_LABEL
from platform_charts.images.job_recorder.fold import new_record, with_workload
from platform_charts.images.job_recorder.ledger import stamp
from platform_charts.images.job_recorder.pods import node_facts
from tests.platform_charts.images.job_recorder.samples import (
    JOB_UID,
    START,
    TEAM,
    Recording,
    at,
    condition,
    ended,
    event,
    pod,
    raycluster,
    rayjob,
    workload,
)


def test_a_workload_that_an_elastic_job_had_with_another_size_does_not_replace_its_present_one() -> None:
    record = with_workload(new_record(rayjob()), workload(condition("Admitted")))
    replaced = workload(condition("Admitted"), condition("Finished", reason="WorkloadSliceReplaced"))
    assert with_workload(record, replaced) == record


def test_what_is_seen_before_its_job_is_recorded_with_it() -> None:
    seen = Recording()
    seen.see("Event", event("e1"))
    seen.see("Pod", pod())
    seen.see("Workload", workload(condition("Admitted")))
    seen.see("RayCluster", raycluster())
    assert seen.due() == []
    seen.see("RayJob", rayjob())
    record = seen.read()
    assert [one.name for one in record.pods.values()] == ["worker-0"]
    assert list(record.clusters) == ["cluster-1"]
    assert record.workload is not None
    assert [one.reason for one in record.events.values()] == ["FailedScheduling"]


def test_objects_of_other_jobs_and_of_an_earlier_submission_stay_their_own() -> None:
    seen = Recording(rayjob())
    seen.see("Pod", pod("other-0", job="other"))
    seen.see("RayCluster", raycluster(job="other"))
    seen.see("Event", event("e1", about="other-0"))
    assert (seen.record["pods"], seen.record["clusters"], seen.record["events"]) == ({}, {}, {})
    seen.see("RayJob", rayjob(), is_gone=True)
    seen.see("RayJob", rayjob(uid="job-2", created=at(30)))
    seen.see("Pod", pod("late", created=at(2)), pod("new", created=at(31)))
    records = {one["uid"]: list(one["pods"]) for one in seen.due()}
    assert records == {JOB_UID: ["late"], "job-2": ["new"]}


def test_a_record_is_written_every_ten_seconds_and_at_once_when_a_container_has_ended() -> None:
    seen = Recording()
    seen.see("RayJob", rayjob(jobDeploymentStatus="Initializing"))
    assert len(seen.due()) == 1
    seen.clock = 3
    seen.see("Pod", pod())
    assert seen.due() == []
    seen.see("Pod", pod(state=ended(137, "OOMKilled")))
    assert len(seen.due()) == 1
    seen.see("Pod", pod(state=ended(137, "OOMKilled")))
    seen.clock = 30
    assert seen.due() == []
    seen.see("Pod", pod(state=ended(137, "OOMKilled"), phase="Failed"))
    assert len(seen.due()) == 1


def test_a_record_that_cannot_be_written_is_tried_again_after_ten_seconds() -> None:
    seen = Recording()
    seen.see("RayJob", rayjob(jobDeploymentStatus="Failed", endTime=stamp(START)))
    seen.ledger.failed(JOB_UID, clock=0)
    assert seen.due() == []
    seen.clock = 10
    assert len(seen.due()) == 1
    seen.clock = 100
    assert len(seen.ledger.complete(seen.clock)) == 1
    seen.ledger.failed(JOB_UID, clock=100)
    assert seen.ledger.complete(105) == []
    assert len(seen.ledger.complete(110)) == 1


def test_the_last_state_of_a_deleted_pod_stays_and_says_what_its_node_was() -> None:
    node = {
        "metadata": {"labels": {CAPACITY_LABEL: "spot", "topology.kubernetes.io/zone": "us-east-1a"}},
        "status": {"conditions": [condition("Ready", status="Unknown")]},
    }
    seen = Recording(node_of_worker_0=node_facts(node))
    seen.see("RayJob", rayjob())
    seen.see("Pod", pod())
    lost = condition("DisruptionTarget", reason="DeletionByTaintManager")
    # The control plane deletes a pod of a lost node and does not report its containers' end.
    seen.see("Pod", pod(conditions=(lost,), containerStatuses=None), is_gone=True)
    (found,) = seen.read().pods.values()
    assert (found.capacity, found.zone, found.node_state) == ("spot", "us-east-1a", "not ready")
    assert [one.reason for one in found.disruptions] == ["DeletionByTaintManager"]
    assert [one.name for one in found.containers] == ["ray-worker"]
    assert found.gone is not None


def test_a_restarted_container_keeps_its_first_end_and_its_newest_and_one_that_was_asked_for_is_no_failure() -> None:
    seen = Recording(rayjob())
    for number in range(6):
        seen.see("Pod", pod("restarted", last=ended(number + 1, time=at(10 + number))))
    asked = {"deletionTimestamp": at(25), "deletionGracePeriodSeconds": 300}
    for minute, ends in ((21, []), (19, [143])):
        seen.see("Pod", pod("asked", state=ended(143, time=at(minute)), metadata=asked))
        codes = {one.name: [end.exit_code for _, end in one.ends] for one in seen.read().pods.values()}
        assert codes == {"restarted": [1, 5, 6], "asked": ends}


def test_events_are_counted_once_however_often_they_are_seen() -> None:
    seen = Recording(rayjob())
    seen.see("Pod", pod())
    for count in (1, 2, 5, 5):
        seen.see("Event", event("e1", count=count))
    seen.see("Event", event("e1"), is_gone=True)  # it has expired
    seen.see("Event", event("e2", count=3, firstTimestamp=at(70), lastTimestamp=at(80)))
    seen.see("Event", event("e3", reason="FailedMount"))
    found = {one.reason: (one.count, one.first, one.last) for one in seen.read().events.values()}
    assert found["FailedScheduling"][0] == 8
    assert f"{found['FailedScheduling'][2]:%H:%M}" == "21:46"
    assert found["FailedMount"][0] == 1


def test_events_of_the_submitters_job_belong_to_the_rayjob_of_its_name() -> None:
    seen = Recording(rayjob())
    submitter = {"kind": "Job", "name": "first", "namespace": TEAM, "uid": "x"}
    seen.see("Event", event("e1", about="first", kind="Job", involvedObject=submitter))
    assert [one.object for one in seen.read().events.values()] == ["Job first"]


def test_a_record_is_complete_once_the_job_is_over_its_pods_are_gone_and_nothing_changes() -> None:
    seen = Recording()
    seen.see("RayJob", rayjob(jobDeploymentStatus="Running"))
    seen.see("Pod", pod())
    seen.due()
    seen.clock = 1000
    assert seen.ledger.complete(seen.clock) == []
    seen.see("RayJob", rayjob(jobDeploymentStatus="Failed", endTime=at(20)))
    seen.due()
    seen.clock = 1100
    assert seen.ledger.complete(seen.clock) == []  # its pod still runs
    seen.see("Pod", pod(), is_gone=True)
    seen.due()
    assert seen.ledger.complete(seen.clock) == []  # an event may follow
    seen.clock = 1200
    (record,) = seen.ledger.complete(seen.clock)
    assert (record["ending"], record["ended"]) == ("Failed", at(20))
    seen.ledger.forget(JOB_UID)
    seen.see("RayJob", rayjob(jobDeploymentStatus="Failed", endTime=at(20)))
    assert seen.due() == []


def test_a_pod_that_never_ends_does_not_keep_a_record_open_for_ever() -> None:
    seen = Recording(rayjob(jobDeploymentStatus="Failed", endTime=stamp(START)))
    seen.see("Pod", pod())
    seen.due()
    seen.clock = 901
    assert len(seen.ledger.complete(seen.clock)) == 1


def test_a_restart_continues_a_record_and_notes_what_is_gone_meanwhile() -> None:
    before = Recording()
    before.see("RayJob", rayjob(jobDeploymentStatus="Running"))
    before.see("Pod", pod("worker-0"), pod("worker-1"))
    after = Recording()
    after.ledger.restore(before.record)
    after.see("RayJob", rayjob(jobDeploymentStatus="Running"))
    after.ledger.listed("Pod", TEAM, {"worker-1"}, at=START + 600, clock=0)
    pods = after.read().pods
    assert (pods["worker-0"].gone is not None, pods["worker-1"].gone) == (True, None)
    after.see("Event", event("e1", about="worker-0"))
    assert len(after.read().events) == 1
    after.ledger.listed("RayJob", TEAM, set(), at=START + 600, clock=0)
    assert after.read().ending == "Deleted"


def test_a_job_that_was_over_keeps_how_it_ended_or_has_no_record_if_it_was_so_for_an_hour() -> None:
    assert Recording(rayjob(jobDeploymentStatus="Complete", endTime=stamp(START - 3601))).due() == []
    over = rayjob(jobDeploymentStatus="Complete", endTime=at(9))
    seen = Recording(over)
    seen.see("RayJob", over, is_gone=True)
    assert (seen.read().ending, seen.read().kept_days) == ("Complete", 7)


def test_every_eviction_is_kept_however_the_condition_changes() -> None:
    seen = Recording(rayjob())
    for minute in (5, 9):
        seen.see("Workload", workload(condition("Evicted", reason="Preempted", time=at(minute))))
        seen.see("Workload", workload(condition("Evicted", status="False", time=at(minute + 1))))
    found = seen.read().workload
    assert found is not None
    assert [f"{one.time:%M}" for one in found.evictions] == ["31", "35"]


def test_a_repeated_status_is_one_transition() -> None:
    seen = Recording()
    for status in ("Initializing", "Initializing", "Running", "Running", "Failed"):
        seen.clock += 10
        seen.see("RayJob", rayjob(jobDeploymentStatus=status))
    assert [one.deployment for one in seen.read().transitions] == ["Initializing", "Running", "Failed"]

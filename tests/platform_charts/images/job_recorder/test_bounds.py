"""No record is larger than its bound, and what explains the end of a job stays in it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from observability.postmortem.record import JobRecord
from platform_charts.images.job_recorder.bounds import LARGEST, bounded, is_failure, size, to_text
from platform_charts.images.job_recorder.document import Pod, Record
from platform_charts.images.job_recorder.fold import new_record, with_cluster, with_event, with_job, with_workload
from platform_charts.images.job_recorder.pods import with_pod
from platform_charts.images.job_recorder.text import both, head
from tests.platform_charts.images.job_recorder.samples import (
    at,
    condition,
    ended,
    event,
    pod,
    raycluster,
    rayjob,
    workload,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=40).map(lambda text: text * 200)


def large(pods: int, events: int, text: str, *, failing: int) -> Record:
    """A record of so many pods, of which the first ones fail one after the other, with a text wherever there is one."""
    record = with_job(new_record(rayjob()), rayjob(jobDeploymentStatus="Failed", message=text, reason=text), now=at(30))
    for number in range(pods):
        state = ended(1, text, time=at(4 + number % 50), message=text) if number < failing else None
        statuses: dict[str, Any] = {"message": text}
        record = with_pod(
            record, pod(f"worker-{number:04d}", state=state, conditions=(condition(text, message=text),), **statuses)
        )
    for number in range(events):
        kind = "Warning" if number % 3 else "Normal"
        record = with_event(
            record, event(f"e{number}", about=f"worker-{number:04d}", type=kind, message=text, reason=text)
        )
    for number in range(12):
        record = with_cluster(record, raycluster(f"cluster-{number}"))
        now = condition("Evicted", message=f"{number}{text}", time=at(number))
        record = with_workload(record, workload(now, *(condition(text, message=text) for _ in range(20))))
        record = with_job(record, rayjob(jobDeploymentStatus=f"{number}{text}", message=text), now=at(number))
    return record


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1200), st.integers(0, 400), TEXTS, st.integers(0, 1200))
def test_no_record_is_larger_than_the_bound(pods: int, events: int, text: str, failing: int) -> None:
    record = large(pods, events, text, failing=min(pods, failing))
    found = bounded(record)
    assert size(found) <= LARGEST
    read = JobRecord.model_validate_json(to_text(found))
    assert read.transitions[-1].time == JobRecord.model_validate_json(to_text(record)).transitions[-1].time
    left = found["left_out"]
    assert len(found["pods"]) + left.get("pods", 0) == len(record["pods"])
    assert len(found["events"]) + left.get("events", 0) == len(record["events"])
    first = min((one for one in record["pods"].values() if is_failure(one)), key=_first_failure, default=None)
    assert first is None or first["uid"] in found["pods"]


def _first_failure(one: Pod) -> str:
    return min(end["finished"] for container in one["containers"] for end in container["ended"])


def test_a_record_that_fits_is_left_as_it_is() -> None:
    record = large(20, 20, "why", failing=3)
    assert bounded(record) is record


def test_normal_events_go_before_warnings_and_warnings_before_failed_pods() -> None:
    found = bounded(large(20, 300, "x" * 300, failing=20))
    assert {one["type"] for one in found["events"].values()} == {"Warning"}
    assert len(found["pods"]) == 20


@given(st.text(), st.integers(20, 300))
def test_texts_are_cut_to_bytes_of_printable_text(text: str, longest: int) -> None:
    for cut in (head(text, longest), both(text, longest)):
        assert len(cut.encode()) <= longest
        assert not any(ord(character) < 32 and character not in "\t\n" for character in cut)


def test_of_a_long_message_the_beginning_and_the_end_stay() -> None:
    message = f"failed with exit code 1{'.' * 9000}ValueError: label 12"
    assert both(message, 500).startswith("failed with exit code 1")
    assert both(message, 500).endswith("ValueError: label 12")

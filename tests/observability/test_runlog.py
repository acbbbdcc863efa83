"""The event log: writers, readers at any time, and events of other versions."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from observability.runlog import FILE_NAME, Notice, RunLogReader, RunLogWriter, Step, decode, encode, read_all, select
from tests.engines.small_disk import small_disk
from tests.limits import files_up_to
from tests.observability.sample_run import restarted_run, write_run


def test_events_of_existing_kinds_are_read_back_as_written(tmp_path: Path) -> None:
    assert read_all(tmp_path) == []
    events = restarted_run()
    assert read_all(write_run(tmp_path, events)) == events
    assert {event.kind for event in events} == {
        *("run_started", "phase", "training_started", "step", "evaluated"),
        *("checkpoint_committed", "restored", "workers_failed", "notice", "run_ended"),
    }


def test_an_event_is_one_line_of_json_with_its_kind() -> None:
    assert encode(Notice(time=2.5, level="info", message="a\nb")) == (
        '{"kind":"notice","time":2.5,"level":"info","message":"a\\nb"}'
    )


def test_values_that_are_not_finite_are_read_back() -> None:
    step = next(event for event in restarted_run() if isinstance(event, Step))
    decoded = decode(encode(replace(step, loss=math.nan, gradient_norm=math.inf)))
    assert isinstance(decoded, Step)
    assert math.isnan(decoded.loss)
    assert decoded.gradient_norm == math.inf


def test_an_unknown_kind_is_ignored() -> None:
    assert decode('{"kind":"profiled","time":1.0}') is None


def test_an_unknown_field_is_dropped() -> None:
    assert decode('{"kind":"notice","time":1.0,"level":"info","message":"a","host":"b"}') == Notice(
        time=1.0, level="info", message="a"
    )


def test_a_missing_field_is_an_error_that_names_the_kind_and_the_field() -> None:
    with pytest.raises(ValueError, match=r"event of kind notice: .*'message'"):
        decode('{"kind":"notice","time":1.0,"level":"info"}')
    with pytest.raises(ValueError, match=r"'\[\]' is not a JSON object"):
        decode("[]")


def test_a_damaged_line_is_skipped(tmp_path: Path) -> None:
    first, second = Notice(level="info", message="first"), Notice(level="info", message="second")
    (tmp_path / FILE_NAME).write_bytes(
        f"{encode(first)}\n{{broken\n".encode() + b"\xff\n" + f"{encode(second)}\n".encode()
    )
    assert read_all(tmp_path) == [first, second]


def test_an_incomplete_last_line_is_read_once_it_is_complete_also_by_a_reader_that_begins_there(tmp_path: Path) -> None:
    line = encode(Notice(time=1.0, level="info", message="a"))
    file = tmp_path / FILE_NAME
    file.write_text(line[:20])
    reader = RunLogReader(tmp_path)
    assert list(reader.read_new()) == []
    file.write_text(f"{line}\n")
    assert list(reader.read_new()) == [decode(line)]
    assert list(reader.read_new()) == []
    second = Notice(level="info", message="second")
    write_run(tmp_path, [second])
    assert list(RunLogReader(tmp_path, offset=reader.offset).read_new()) == [second]


def notices(folder: Path) -> list[str]:
    return [notice.message for notice in select(read_all(folder), Notice)]


def test_a_line_that_a_full_disk_cut_off_is_not_glued_to_the_next_event(tmp_path: Path) -> None:
    first, lost, later = (Notice(level="info", message=name) for name in ("first", "lost " * 2000, "later"))
    with small_disk(tmp_path / "disk", size="16k") as disk, RunLogWriter(disk) as early:
        early.write(first)
        with RunLogWriter(disk) as writer, pytest.raises(OSError, match="No space left on device"):
            writer.write(*[lost] * 3)
        cut = (disk / FILE_NAME).read_bytes()
        assert not cut.endswith(b"\n")
        # Make room, as a user would, and go on with a writer that was open all the time, like the driver's.
        (disk / FILE_NAME).write_bytes(cut[:8000])
        early.write(later)
        events = read_all(disk)
    assert events[0] == first
    assert events[-1] == later


def test_the_first_writer_after_a_torn_line_logs_that_events_are_missing(tmp_path: Path) -> None:
    write_run(tmp_path, [Notice(level="info", message="first")])
    with RunLogWriter(tmp_path) as log, pytest.raises(OSError, match="File too large"), files_up_to(140):
        log.write(Notice(level="info", message="lost"))
    for message in ("second", "third"):
        write_run(tmp_path, [Notice(level="info", message=message)])
    first, note, *rest = notices(tmp_path)
    assert (first, rest) == ("first", ["second", "third"])
    assert "events.jsonl" in note
    assert "incomplete" in note


def test_an_event_without_only_its_line_end_is_kept(tmp_path: Path) -> None:
    log = tmp_path / FILE_NAME
    write_run(tmp_path, [Notice(level="info", message="first")])
    log.write_bytes(log.read_bytes()[:-1])
    write_run(tmp_path, [Notice(level="info", message="second")])
    assert [notices(tmp_path)[0], notices(tmp_path)[-1]] == ["first", "second"]

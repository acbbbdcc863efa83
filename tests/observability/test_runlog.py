"""The event log: writers, readers at any time, events of other versions, and times where the wall clock is set."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from observability.event_log import NOW
from observability.runlog import FILE_NAME, Notice, RunLogReader, RunLogWriter, Step, decode, encode, read_all, select
from observability.steady_clock import SteadyClock
from observability.uptime import BOOT, uptime
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
    line = '{"kind":"notice","time":2.5,"level":"info","message":"a\\nb"}'
    assert encode(Notice(time=2.5, level="info", message="a\nb")) == line
    step = next(event for event in restarted_run() if isinstance(event, Step))
    decoded = decode(encode(replace(step, loss=math.nan, gradient_norm=math.inf)))
    assert isinstance(decoded, Step)
    assert math.isnan(decoded.loss)
    assert decoded.gradient_norm == math.inf


def test_of_other_versions_unknown_kinds_and_fields_are_dropped_and_missing_fields_named() -> None:
    assert decode('{"kind":"profiled","time":1.0}') is None
    more = decode('{"kind":"notice","time":1.0,"level":"info","message":"a","host":"b"}')
    assert more == Notice(time=1.0, level="info", message="a")
    for line, said in (
        ('{"kind":"notice","time":1.0,"level":"info"}', r"event of kind notice: .*'message'"),
        ("[]", r"'\[\]' is not a JSON object"),
    ):
        with pytest.raises(ValueError, match=said):
            decode(line)


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


HOUR = 3600.0


def notice(time: float, uptime: float | None = None, *, boot: str = "a") -> Notice:
    return Notice(time=time, uptime=uptime, boot="" if uptime is None else boot, level="info", message="")


def steady(*events: Notice) -> list[float]:
    clock = SteadyClock()
    return [clock.steady(event).time for event in events]


def test_an_event_has_the_uptime_of_its_machine_beside_its_time() -> None:
    before = uptime()
    event = Notice(level="info", message="")
    assert before is not None
    assert event.uptime is not None
    assert before <= event.uptime
    assert event.time == pytest.approx(time.time(), abs=60)
    assert event.boot == BOOT != ""


def test_a_copy_keeps_both_times_and_one_of_now_has_both_anew() -> None:
    event = notice(5.0, 1.0)
    kept, anew = replace(event, message="b"), replace(event, time=NOW)
    assert (kept.time, kept.uptime) == (5.0, 1.0)
    assert anew.time > 5.0
    assert anew.boot == BOOT


def test_uptimes_of_two_processes_are_of_one_clock() -> None:
    program = "from observability.uptime import BOOT, uptime; print(BOOT, uptime())"
    before = uptime()
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    boot, _, other = told.partition(" ")
    after = uptime()
    assert boot == BOOT
    assert before is not None
    assert after is not None
    assert before < float(other) < after


def test_a_log_keeps_uptimes_and_one_of_an_older_version_has_none(tmp_path: Path) -> None:
    event = Notice(level="info", message="new")
    with RunLogWriter(tmp_path) as log:
        log.write(event)
    with (tmp_path / "events.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"kind":"notice","time":5.0,"level":"info","message":"old"}\n')
    assert read_all(tmp_path) == [event, Notice(time=5.0, level="info", message="old")]
    assert f'"boot":"{BOOT}"' in encode(event)


def test_times_go_on_as_if_the_clock_of_a_machine_had_not_been_set() -> None:
    for seconds in (HOUR, -HOUR):
        events = [notice(100, 50), notice(110, 60), notice(120 + seconds, 70), notice(130 + seconds, 80)]
        assert steady(*events) == [100, 110, 120, 130]
    late = [notice(100, 50), notice(120 + HOUR, 70), notice(110, 60)]
    assert steady(*late) == [100, 120, 110], "rank 0 writes its steps later, in batches"
    two = [notice(100, 50), notice(103, 900, boot="b"), notice(110 + HOUR, 60), notice(113, 910, boot="b")]
    assert steady(*two) == [100, 103, 110, 113]


def test_times_are_believed_after_a_boot_a_correction_and_without_uptime() -> None:
    assert steady(notice(100, 50), notice(500, 5, boot="later")) == [100, 500]
    assert steady(notice(100, 50), notice(110.2, 60)) == [100, 110.2], "a time server corrects it"
    assert steady(notice(100), notice(110 + HOUR)) == [100, 110 + HOUR]
    assert (notice(5.0).uptime, notice(5.0).boot) == (None, "")

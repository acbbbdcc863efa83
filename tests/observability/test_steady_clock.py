"""The times of events where the wall clock is set: uptimes of real processes, and logs whose answer is known."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from observability.event_log import NOW
from observability.runlog import Notice, RunLogWriter, encode, read_all
from observability.steady_clock import SteadyClock
from observability.uptime import BOOT, uptime

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


def test_times_go_on_as_if_the_clock_had_not_been_set() -> None:
    for seconds in (HOUR, -HOUR):
        events = [notice(100, 50), notice(110, 60), notice(120 + seconds, 70), notice(130 + seconds, 80)]
        assert steady(*events) == [100, 110, 120, 130]


def test_times_are_believed_after_a_boot_a_correction_and_without_uptime() -> None:
    assert steady(notice(100, 50), notice(500, 5, boot="later")) == [100, 500]
    assert steady(notice(100, 50), notice(110.2, 60)) == [100, 110.2], "a time server corrects it"
    assert steady(notice(100), notice(110 + HOUR)) == [100, 110 + HOUR]
    assert (notice(5.0).uptime, notice(5.0).boot) == (None, "")


def test_an_event_from_before_the_clock_was_set_may_come_after_others() -> None:
    """Rank 0 writes its steps later, in batches."""
    assert steady(notice(100, 50), notice(120 + HOUR, 70), notice(110, 60)) == [100, 120, 110]


def test_the_clock_of_one_machine_is_set_and_that_of_another_is_not() -> None:
    events = [notice(100, 50), notice(103, 900, boot="b"), notice(110 + HOUR, 60), notice(113, 910, boot="b")]
    assert steady(*events) == [100, 103, 110, 113]

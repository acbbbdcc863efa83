"""When a session ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from training.errors import ExitStatus, SettingsError
from training.interactive.activity import terminal_age
from training.interactive.cost import describe_cost
from training.interactive.idle import Activity, IdleClock, minutes_of
from training.interactive.session import keep
from training.options.sessions import SessionOptions

NOTHING = Activity()
TASK = Activity(running="task train")


def clock() -> IdleClock:
    """A session that started at 0, may be idle for 10 s, and lasts 100 s at most."""
    return IdleClock(idle_seconds=10, longest_seconds=100, started=0)


def test_a_session_ends_after_its_idle_time_which_the_end_of_a_task_and_typing_start_anew() -> None:
    never = clock()
    assert never.observe(NOTHING, now=9.9) is None
    assert never.observe(NOTHING, now=10) == "nobody used it for 10.0 s"
    task = clock()
    assert [task.observe(seen, now=now) for seen, now in ((TASK, 50), (NOTHING, 59.9))] == [None, None]
    assert task.observe(NOTHING, now=60) is not None
    typed = clock()  # and the terminal stays open
    assert [typed.observe(Activity(age=age), now=now) for age, now in ((2, 12), (9, 19))] == [None, None]
    assert typed.observe(Activity(age=10), now=20) is not None
    assert clock().observe(TASK, now=99.9) is None
    assert clock().observe(TASK, now=100) == "its time limit of 1 min 40 s is over"


def test_the_age_of_a_terminal_is_that_of_the_one_used_last(tmp_path: Path) -> None:
    assert terminal_age(tmp_path) is None
    for name, age in (("0", 500), ("1", 60), ("ptmx", 0)):
        (tmp_path / name).touch()
        then = (tmp_path / name).stat().st_mtime - age
        os.utime(tmp_path / name, (then, then))
    found = terminal_age(tmp_path)
    assert found is not None
    assert 59 < found < 65


class Scripted:
    """A cluster with given answers; the last one is repeated."""

    def __init__(self, *answers: Activity | Exception) -> None:
        self._answers = list(answers)
        self.asked = 0

    def observe(self) -> Activity:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


OPTIONS = SessionOptions(gpus=2, idle_minutes=0, hours=1, usd_per_hour=3.0)


def test_the_end_of_a_session_names_reason_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    assert keep(Scripted(NOTHING), OPTIONS, sleep=lambda _: None) is ExitStatus.DONE
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "session ended: nobody used it for 0.0 ms; 0.00 GPU-hours, about $0.00"
    assert keep(Scripted(NOTHING), OPTIONS, sleep=interrupted) is ExitStatus.INTERRUPTED
    assert "it was stopped; 0.00 GPU-hours" in capsys.readouterr().out
    for gpus, price, text in (
        (4, 5.672, "10.00 GPU-hours, about $14.18"),
        (4, None, "10.00 GPU-hours, price unknown"),
        (0, None, "2.50 hours without GPUs"),
    ):
        assert describe_cost(9000, gpus=gpus, usd_per_hour=price) == text


def test_a_cluster_that_does_not_answer_for_a_moment_keeps_its_session(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Scripted(ConnectionError("dashboard restarts"), NOTHING)
    options = SessionOptions(idle_minutes=1e-9, hours=1)
    assert keep(cluster, options, sleep=lambda _: None) is ExitStatus.DONE
    assert cluster.asked == 2
    assert "warning: Ray does not answer: dashboard restarts" in capsys.readouterr().out


def test_an_idle_time_is_typed_with_its_unit() -> None:
    assert [minutes_of(text) for text in ("30m", "2h", "1.5h")] == [30, 120, 90]
    for wrong in ("30", "30s", "0.5m", "", "-1h"):
        with pytest.raises(SettingsError, match="at least a minute"):
            minutes_of(wrong)

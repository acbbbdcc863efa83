"""The benchmark of faults: what it reads from the marks of both sides, its table, what it refuses, and a real kill."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from infra.spec.errors import ExitStatus
from observability.benchmarks.faults.__main__ import main
from observability.benchmarks.faults.job import SAVE_EVERY, paced_job
from observability.benchmarks.faults.kill import kill_rank
from observability.benchmarks.faults.marks import MARKS, Mark, Recovery, decode, recovery, steps_per_second
from observability.benchmarks.faults.sides import Platform
from observability.benchmarks.faults.table import Figure
from observability.benchmarks.options import comparisons
from observability.event_log import LogReader, encode, select
from training.config.load import validate_names


def steps(*numbers: int, begin: float) -> list[Mark]:
    """Marks of steps that end a second apart."""
    return [Mark(what="step", time=time, step=step) for time, step in zip(count(begin), numbers, strict=False)]


FIRST = [Mark(what="start", time=9.0), *steps(1, 2, 3, 4, begin=10.0)]


def test_a_recovery_ends_with_the_first_step_of_the_next_attempt() -> None:
    again = [Mark(what="failure", time=14.1), Mark(what="start", time=15.0, step=2), *steps(3, 4, 5, begin=16.0)]
    found = recovery([*FIRST, *again], fault=13.5)
    assert found is not None
    assert found.detect == pytest.approx(0.6)
    assert found.next_step == pytest.approx(2.5)
    assert found.lost_steps == 2
    later = recovery([*FIRST, Mark(what="start", time=15.0, step=6), *steps(7, begin=16.0)], fault=13.5)
    assert later is not None
    assert later.lost_steps == 0, "it goes on from a later step than it had reported"


def test_steps_that_end_after_the_fault_in_the_same_attempt_are_no_recovery_but_can_be_lost() -> None:
    after_drain = steps(5, 6, 7, begin=14.0)
    assert recovery([*FIRST, *after_drain], fault=13.5) is None
    assert recovery([*FIRST, *after_drain, Mark(what="start", time=18.0, step=5)], fault=13.5) is None
    moved = [Mark(what="start", time=18.0, step=5), *steps(6, begin=19.0)]
    assert recovery([*FIRST, *after_drain, *moved], fault=13.5) == Recovery(detect=None, next_step=5.5, lost_steps=2)


def test_steps_that_are_trained_again_count_once() -> None:
    again = [Mark(what="start", time=15.0, step=2), *steps(3, 4, 5, begin=16.0)]
    assert steps_per_second([*FIRST, *again], begin=10.0, end=18.0) == pytest.approx(4 / 8)
    assert steps_per_second([*FIRST, *again], begin=10.0, end=16.5) == pytest.approx(2 / 6.5)


def test_marks_survive_their_log(tmp_path: Path) -> None:
    (tmp_path / MARKS).write_text("".join(f"{encode(mark)}\n" for mark in FIRST), encoding="ascii")
    assert select(LogReader(tmp_path / MARKS, decode).read_new(), Mark) == FIRST


def test_a_row_has_medians_spreads_ratio_and_whether_the_goal_is_missed() -> None:
    fast, slow = [0.1, 0.2, 0.4], [2.0, 1.0, 4.0]
    reached = Figure(name="pause", unit="s", ours=fast, theirs=slow, ratio_at_most=0.3)
    assert reached.row() == ["pause", "0.2 s (0.1 to 0.4, 3)", "2 s (1 to 4, 3)", "0.10", "ratio 0.3 at most"]
    missed = [
        Figure(name="pause", unit="s", ours=slow, theirs=fast, ratio_at_most=0.3),
        Figure(name="detect", unit="s", ours=slow, theirs=slow, at_most=0.3),
        Figure(name="goodput", ours=[0.9], theirs=[0.9], at_least=0.95),
    ]
    assert [figure.row()[-1].endswith("missed") for figure in missed] == [True, True, True]
    lost = Figure(name="steps lost", ours=[0, 0], theirs=[0, 0], at_most=0)
    assert (lost.ratio, lost.is_reached) == (None, True)


def test_the_job_is_valid_and_saves_at_the_end_of_each_epoch() -> None:
    settings = paced_job(step_seconds=0.05, scale={"address": "127.0.0.1:6379"})
    validate_names(settings)
    assert settings.scale.workers == 2
    samples = settings.data.options["samples"]
    assert (
        samples
        == settings.loop.global_batch * SAVE_EVERY
        == settings.loop.global_batch * settings.checkpoint.every_steps
    )


def test_numbers_that_measure_nothing_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for option, value in (("--rounds", "0"), ("--kills", "0"), ("--interval", "1"), ("--notice", "nan")):
        assert main([option, value]) == ExitStatus.WRONG_INPUT
        assert capsys.readouterr().err.startswith(f"error: {option} {value}: at least ")
    for option in ("--rounds", "--workers", "--megabytes"):
        with pytest.raises(SystemExit):
            comparisons().parse_args([option, "0"])
        assert f"argument {option}: must be at least 1, not 0" in capsys.readouterr().err


@pytest.mark.extended
def test_a_killed_rank_of_the_platform_is_measured(tmp_path: Path) -> None:
    with Platform(paced_job(step_seconds=0.02), tmp_path) as running:
        running.wait_for_step(20)
        found = kill_rank(running, 1)
    assert found.lost_steps == 0
    assert found.detect is not None
    assert 0 < found.detect < found.next_step

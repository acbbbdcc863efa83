"""Where the jobs of a group go in a window."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from infra.lifecycle.capacity.placing import Fit, Job, place
from infra.lifecycle.capacity.windows import Window
from tests.infra.lifecycle.capacity.samples import HOUR, NOW
from tests.infra.lifecycle.capacity.test_calendar import calendar, job

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
    assert found == {
        "runs": START - HOUR,
        "short": START,
        "large": START + 4 * HOUR,
        "long": START + 14 * HOUR,
    }


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
        assert sum(one.job.gpus for one in placed if _runs_at(one, moment)) <= BLOCK.gpus
    alone = place(BLOCK, waiting[:-1], now=NOW)
    everybody = {id(one.job): one.starts for one in place(BLOCK, waiting, now=NOW)}
    assert all(everybody[id(one.job)] == one.starts for one in alone)


def _runs_at(fit: Fit, moment: datetime) -> bool:
    return fit.ends is not None and fit.starts <= moment < fit.ends

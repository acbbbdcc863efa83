"""Whatever happens to a run, the classes of its goodput add up to its wall time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from observability.goodput import GoodputLedger
from observability.runlog import Event, Phase, RunEnded, RunStarted, Step, WorkersMoved
from tests.observability.test_goodput import evaluated, failed, ready, started, step

WAITS = st.floats(0, 40)
PARTS = st.floats(-1, 5) | st.just(float("nan")) | st.just(float("inf"))


@st.composite
def lives(draw: st.DrawFn) -> list[Event]:
    """The log of a run that is started, fails, restarts, is stopped or killed, and resumes, as often as it takes."""
    now, done = 1000.0, 0
    events: list[Event] = []

    def later() -> float:
        nonlocal now
        now += draw(WAITS)
        return now

    for _ in range(draw(st.integers(1, 3))):
        events.append(started(later()))
        for attempt in range(draw(st.integers(1, 3))):
            events.append(Phase(time=later(), name="workers_start"))
            done = draw(st.integers(0, done))
            events.append(ready(later(), start_step=done))
            for _ in range(draw(st.integers(0, 6))):
                done += 1
                events.append(measured(done, later(), draw))
                if draw(st.booleans()):
                    events.append(evaluated(later(), at_step=done))
            if draw(st.booleans()):
                events.append(Phase(time=later(), name="finish", process="rank 0"))
            if draw(st.booleans()):
                events.append(WorkersMoved(time=later(), step=done, reason="resized"))
            elif draw(st.booleans()) or attempt:
                events.append(failed(later(), restarts=draw(st.booleans())))
        if draw(st.booleans()):
            events += [Phase(time=later(), name="finish"), RunEnded(time=later(), status="failed", step=done)]
    return events


def measured(number: int, time: float, draw: st.DrawFn) -> Step:
    """A step whose measured parts need not make sense."""
    names = (
        "seconds",
        "data_seconds",
        "forward_seconds",
        "backward_seconds",
        "optimizer_seconds",
        "checkpoint_seconds",
    )
    parts: dict[str, float | None] = {name: draw(PARTS) for name in names}
    parts["communication_seconds"] = draw(PARTS | st.none())
    return Step(**{**vars(step(number, time)), **parts, "rank_seconds": draw(st.lists(PARTS, max_size=3))})


@st.composite
def any_events(draw: st.DrawFn, times: st.SearchStrategy[float]) -> list[Event]:
    """Events in any order, at any of these times."""
    names, processes = st.sampled_from(["finish", "imports"]), st.sampled_from(["driver", "rank 0"])
    makers: list[Callable[[float, int], Event]] = [
        lambda time, number: replace(started(time), submitted=time - number),
        lambda time, _: Phase(time=time, name=draw(names), process=draw(processes)),
        lambda time, number: ready(time, start_step=number),
        lambda time, number: measured(number, time, draw),
        lambda time, number: evaluated(time, at_step=number),
        lambda time, number: failed(time, restarts=number > 4),
        lambda time, number: WorkersMoved(time=time, step=number, reason="resized"),
        lambda time, number: RunEnded(time=time, status="failed", step=number),
    ]
    chosen = draw(st.lists(st.sampled_from(makers), min_size=1, max_size=20))
    return [make(draw(times), draw(st.integers(1, 9))) for make in chosen]


def folded(events: list[Event]) -> GoodputLedger:
    """The ledger of the events, whose sums are checked after each one."""
    ledger = GoodputLedger()
    before = dict(ledger.counted), dict(ledger.repeated)
    for event in events:
        ledger.add(event)
        now = dict(ledger.counted), dict(ledger.repeated)
        for sums, earlier in zip(now, before, strict=True):
            assert all(sums[name] >= earlier[name] for name in sums), "counters never decrease"
        assert min(ledger.seconds.values()) >= 0
        assert sum(ledger.seconds.values()) == pytest.approx(ledger.wall_seconds, abs=1e-6)
        before = now
    return ledger


@given(lives())
def test_the_classes_of_any_run_add_up_to_its_wall_time(events: list[Event]) -> None:
    assert folded(events).wall_seconds == pytest.approx(events[-1].time - events[0].time, abs=1e-6)


@given(lives(), st.lists(st.integers(-500_000, 500_000).map(lambda number: 2.0 * number), min_size=1))
def test_a_clock_that_is_set_again_and_again_changes_no_sum_where_events_have_an_uptime(
    events: list[Event], offsets: list[float]
) -> None:
    machine = [
        replace(event, time=event.time + offsets[index % len(offsets)], uptime=event.time, boot="a")
        for index, event in enumerate(events)
    ]
    assert folded(machine).wall_seconds == pytest.approx(events[-1].time - events[0].time, abs=1e-6)


@given(any_events(st.floats(0, 59)))
def test_events_in_any_order_add_up_to_the_time_that_they_span(events: list[Event]) -> None:
    first = events[0]
    begun = first.submitted if isinstance(first, RunStarted) and first.submitted > 0 else first.time
    span = max(event.time for event in events) - begun
    assert folded(events).wall_seconds == pytest.approx(span, abs=1e-6)


@given(any_events(st.floats(-1e6, 1e6)))
def test_a_clock_that_jumps_makes_no_time_negative(events: list[Event]) -> None:
    assert 0 <= folded(events).ratio <= 1 + 1e-9

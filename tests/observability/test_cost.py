"""The cost of a run: the price of each driver's machines for the time that it ran, by class of that time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from observability.cost import UNPAID, PrintedCost, RunCost, find_printed_cost
from observability.goodput import GoodputLedger
from observability.runlog import Event, RunEnded, RunStarted, WorkersMoved
from observability.time_classes import CLASSES
from tests.observability.test_goodput import committed, failed, folded, ready, started, steps
from tests.observability.test_goodput_sums import lives

PRICES = st.none() | st.floats(0.01, 1000)


def at(price: float | None, start: RunStarted) -> RunStarted:
    return replace(start, dollars_per_hour=price)


def dollars_of(events: Sequence[Event]) -> dict[str, float]:
    """The classes that cost something, in dollars rounded to a millionth."""
    cost = folded(events).cost
    assert cost is not None
    return {name: round(value, 6) for name, value in cost.by_class.items() if value > 1e-9}


def test_an_elastic_run_costs_as_many_workers_as_it_has() -> None:
    scale = {"scale": {"min_workers": 1, "workers": 4}}
    start = replace(at(3600.0, started(100.0)), dollars_per_worker_hour=360.0, settings=scale)
    events = [
        start,
        ready(110.0),  # the head and one worker: $1.10 a second
        *steps(1, 2, since=110),  # two workers: $1.20 a second
        WorkersMoved(time=114, step=2, reason="resized"),
        replace(ready(116.0, start_step=2), world=4),
        *steps(3, 4, since=116),  # four workers: $1.40 a second
        RunEnded(time=120, status="done", step=4),
    ]
    assert dollars_of(events)["startup"] == 11.0
    assert dollars_of(events)["restart"] == 2.4
    total = folded(events).cost
    assert total is not None
    assert total.total == pytest.approx(11.0 + 4 * 1.2 + 2.4 + 4 * 1.4)


def test_each_class_costs_the_price_of_its_time() -> None:
    start, ended = [at(3600.0, started(100.0)), ready(110.0)], RunEnded(time=115, status="done", step=2)
    parts = {"productive": 2.4, "data": 0.6, "communication": 0.4, "checkpoint": 0.4, "other": 0.2}
    assert dollars_of([*start, *steps(1, 2, since=110), ended]) == {**parts, "startup": 10.0, "lost": 1.0}
    failure = [*start, failed(112.0), ready(120.0)]
    assert dollars_of(failure) == {"startup": 10.0, "detection": 2.0, "restart": 8.0}, "it keeps its driver's price"
    assert folded([started(100.0), ready(110.0)]).cost is None


def test_steps_that_another_driver_repeats_are_lost_at_the_price_they_had() -> None:
    first = [at(3600.0, started(100.0)), ready(110.0), *steps(1, 4, since=110), committed(2)]
    killed_and_resumed = [*first, at(7200.0, started(200.0)), ready(210.0, start_step=2), *steps(3, 4, since=210)]
    dollars = dollars_of(killed_and_resumed)
    assert dollars["lost"] == pytest.approx(2 * 2.0)
    assert dollars["productive"] == pytest.approx(2 * 1.2 + 2 * 1.2 * 2)
    assert (dollars["startup"], dollars["restart"]) == (10.0, 20.0)


def test_the_queue_and_the_pause_between_two_drivers_cost_nothing() -> None:
    queued = replace(at(3600.0, started(100.0)), submitted=40.0)
    events = [
        queued,
        ready(110.0),
        RunEnded(time=110, status="failed", step=0),
        at(3600.0, started(500.0)),
        ready(501.0),
    ]
    ledger = folded(events)
    assert (ledger.seconds["queue"], ledger.seconds["idle"]) == (60.0, 390.0)
    assert ledger.cost is not None
    assert ledger.cost.total == pytest.approx(11.0)


def test_time_at_an_unknown_price_is_named_and_not_in_the_dollars() -> None:
    ended = RunEnded(time=110, status="failed", step=0)
    events = [started(100.0), ready(110.0), ended, at(3600.0, started(200.0)), ready(205.0)]
    cost = folded(events).cost
    assert cost is not None
    assert [cost.total, cost.unpriced_seconds] == pytest.approx([5.0, 10.0])
    assert cost.describe() == "$5.00, 0.0 % of it productive; restart $5.00; without 10.0 s at an unknown price"


@given(lives(), st.data())
def test_the_dollars_of_the_classes_add_up_to_price_times_time_over_resumes_at_other_prices(
    events: list[Event], data: st.DataObject
) -> None:
    priced = [at(data.draw(PRICES), one) if isinstance(one, RunStarted) else one for one in events]
    starts = [index for index, one in enumerate(priced) if isinstance(one, RunStarted)]
    spent, unpriced = 0.0, 0.0
    for first, after in zip(starts, [*starts[1:], len(priced)], strict=True):
        start, hours = priced[first], (priced[after - 1].time - priced[first].time) / 3600
        assert isinstance(start, RunStarted)
        spent += hours * (start.dollars_per_hour or 0.0)
        unpriced += 0.0 if start.dollars_per_hour else hours * 3600
    ledger = GoodputLedger()
    before = dict.fromkeys(CLASSES, 0.0)
    for event in priced:
        ledger.add(event)
        assert all(ledger.counted_dollars[name] >= before[name] for name in CLASSES), "counters never decrease"
        before = dict(ledger.counted_dollars)
    if ledger.cost is None:
        assert spent == 0.0
        return
    assert ledger.cost.total == pytest.approx(spent, abs=1e-6)
    assert ledger.cost.unpriced_seconds == pytest.approx(unpriced, abs=1e-6)
    assert min(ledger.cost.by_class.values()) >= 0.0
    assert all(ledger.cost.by_class[name] == 0.0 for name in UNPAID)


def test_what_the_last_driver_prints_is_read_back() -> None:
    for dollars in (0.0, 0.000012, 0.05, 12.3, 1234567.891):
        cost = RunCost(by_class={**dict.fromkeys(CLASSES, 0.0), "productive": dollars, "startup": dollars / 3})
        log = ["step 40/40  loss 0.1", f"cost {cost.describe()}", "  report     .local/runs/a/report.html  cost $9.00"]
        found = find_printed_cost(log)
        assert found is not None
        assert found.dollars == pytest.approx(cost.total, rel=0.05, abs=5e-5)
        assert found.productive_share == pytest.approx(0.75 if dollars else 0.0)
    lines = ["cost $1.00, 50.0 % of it productive; startup $0.50", "cost $2.00, 75.0 % of it productive"]
    assert find_printed_cost(lines) == PrintedCost(2.0, 0.75)
    assert find_printed_cost(["goodput 12.4 %", "cost of the run: nothing"]) is None

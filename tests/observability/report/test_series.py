"""The data of the plots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from observability.history import RunHistory
from observability.report.series import (
    MAX_POINTS,
    Floats,
    centred_mean,
    group_size,
    grouped,
    smoothing_window,
    startup_spans,
)
from tests.observability.sample_run import START, SampleRun, finished_run, restarted_run

lengths = st.integers(min_value=1, max_value=3000)
values = lengths.flatmap(
    lambda length: arrays.arrays(
        np.float64, length, elements=st.floats(-1e6, 1e6) | st.just(np.nan) | st.just(np.inf), fill=st.floats(-5, 5)
    )
)


@given(values)
def test_groups_are_few_and_bound_every_finite_value_and_their_mean(series: Floats) -> None:
    found = grouped(np.arange(1.0, len(series) + 1), series)
    assert len(found.mean) == -(-len(series) // found.group) <= MAX_POINTS
    low, high = np.repeat(found.low, found.group), np.repeat(found.high, found.group)
    known = np.isfinite(series)
    assert (low[: len(series)][known] <= series[known]).all()
    assert (series[known] <= high[: len(series)][known]).all()
    finite = np.isfinite(found.mean)
    assert (found.mean[finite] >= found.low[finite] - 1e-6).all()
    assert (found.mean[finite] <= found.high[finite] + 1e-6).all()


def test_few_steps_are_not_grouped() -> None:
    series = np.array([1.0, np.nan, 3.0])
    found = grouped(np.array([5.0, 6.0, 7.0]), series)
    assert found.group == 1
    np.testing.assert_array_equal(found.mean, series)
    np.testing.assert_array_equal(found.step, [5, 6, 7])


def test_a_group_is_placed_at_its_mean_step_and_the_last_may_be_smaller() -> None:
    count = 2 * MAX_POINTS + 1
    found = grouped(np.arange(1.0, count + 1), np.ones(count))
    assert found.group == group_size(count) == 3
    assert found.step[0] == 2
    assert found.step[-1] == pytest.approx(np.arange(1.0, count + 1)[-(count % 3 or 3) :].mean())


@given(values, st.integers(1, 50), st.floats(-1e3, 1e3))
def test_the_moving_average_of_a_constant_is_that_constant(series: Floats, window: int, level: float) -> None:
    constant = np.where(np.isfinite(series), level, np.nan)
    found = centred_mean(constant, window)
    np.testing.assert_allclose(found[np.isfinite(found)], level, atol=1e-6)
    assert np.isfinite(found[np.isfinite(constant)]).all()


def test_the_moving_average_is_centred_over_a_fiftieth_of_the_steps_and_at_least_5() -> None:
    for window, expected in ((3, [0, 4, 4, 4, 0]), (4, [0, 4, 3, 3, 4])):
        np.testing.assert_allclose(centred_mean(np.array([0.0, 0.0, 12.0, 0.0, 0.0]), window), expected)
    assert [smoothing_window(count) for count in (10, 299, 1000)] == [5, 5, 20]


def test_a_start_up_span_ends_when_the_next_of_its_process_begins() -> None:
    spans = {span.name: span for span in startup_spans(RunHistory.from_events(finished_run()))}
    assert list(spans) == [
        "starting Ray",
        "starting workers",
        "loading Python packages",
        "connecting the ranks",
        "preparing data",
        "building the model",
        "first step",
    ]
    assert spans["starting Ray"].end == pytest.approx(2.9)
    assert spans["loading Python packages"].end == pytest.approx(spans["connecting the ranks"].start)
    assert spans["starting workers"].end == pytest.approx(spans["first step"].start)
    assert spans["first step"].process == "rank 0"


def test_start_up_is_that_of_the_newest_command_and_ends_when_training_starts_or_with_the_log() -> None:
    events = restarted_run()
    assert events[-1].time - START > 70
    assert startup_spans(RunHistory.from_events(events))[-1].end < 10
    ready = RunHistory.from_events(SampleRun().start().train(1, 0).events)
    assert startup_spans(ready)[-1].name == "building the model"
    spans = startup_spans(RunHistory.from_events(SampleRun().start().events))
    assert [span.name for span in spans] == ["starting Ray", "starting workers"]

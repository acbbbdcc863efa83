"""What the plots show, read from their SVG, down to a run of one step; and their data."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from observability.history import RunHistory
from observability.report.plots import draw_plots
from observability.report.series import (
    MAX_POINTS,
    Floats,
    centred_mean,
    group_size,
    grouped,
    smoothing_window,
    startup_spans,
)
from observability.runlog import CheckpointCommitted, Event, Step
from tests.observability.sample_run import START, SampleRun, finished_run, restarted_run

Points = list[tuple[float, float]]


def drawings(events: list[Event]) -> dict[str, str]:
    """The SVG of each plot by its key."""
    return {plot.key: plot.svg for plot in draw_plots(RunHistory.from_events(events))}


def markers(svg: str, variable: str) -> Points:
    """Positions of a curve's markers, in points from the top left; the legend's are included."""
    uses = re.findall(rf'<use [^>]*x="([\d.]+)" y="([\d.]+)" style="fill: var\({variable}\)[^>]*>', svg)
    return [(float(x), float(y)) for x, y in uses]


def frame(svg: str) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of the axes' background, the second filled path after the figure's."""
    path = re.findall(r'<path d="([^"]*)" style="fill: var\(--card\)', svg)[1]
    corners = [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", path)]
    xs, ys = [x for x, _ in corners], [y for _, y in corners]
    return min(xs), min(ys), max(xs), max(ys)


def slow_writes(seconds: list[float]) -> list[Event]:
    """The events of a run whose checkpoints took so long to write, with a stall of 1 ms each."""
    left = iter(seconds)
    return [
        replace(event, write_seconds=next(left), stall_seconds=0.001)
        if isinstance(event, CheckpointCommitted)
        else event
        for event in finished_run(50 * len(seconds))
    ]


def test_checkpoint_times_are_inside_the_axes_on_a_logarithmic_scale() -> None:
    svg = drawings(slow_writes([0.04, 0.08, 0.16, 0.32]))["checkpoints"]
    _, top, _, bottom = frame(svg)
    writes, stalls = markers(svg, "--validation")[:4], markers(svg, "--train")[:4]
    heights = [y for _, y in [*writes, *stalls]]
    assert top < min(heights) < max(heights) < bottom
    rises = [before - after for (_, before), (_, after) in pairwise(writes)]
    assert min(rises) > 5
    assert max(rises) - min(rises) < 0.1, "a factor of two is the same distance everywhere on a logarithmic axis"
    assert min(y for _, y in stalls) - max(y for _, y in writes) > 0.5 * (bottom - top)


def test_checkpoint_times_start_at_zero_on_a_linear_scale() -> None:
    svg = drawings(slow_writes([0.004, 0.008, 0.012, 0.016]))["checkpoints"]
    _, _, _, bottom = frame(svg)
    (_, first), *_, (_, last) = markers(svg, "--validation")[:4]
    assert math.isclose((bottom - last) / (bottom - first), 4, rel_tol=0.01)


def test_a_run_of_one_step_has_a_visible_point_in_every_curve_and_a_bar_of_its_step_time() -> None:
    svgs = drawings(SampleRun(steps=1, steps_per_epoch=1).start().train(1, 1).finish().events)
    for key in ("loss", "accuracy", "throughput", "optimization"):
        assert markers(svgs[key], "--train"), key
    assert markers(svgs["optimization"], "--validation"), "learning rate"
    left, _, right, _ = frame(svgs["step-time"])
    bars = re.findall(r'<path d="(M[^"]*)" clip-path[^>]* style="fill: var\(--part-2\)', svgs["step-time"])
    xs = [float(x) for x, _ in re.findall(r"([\d.]+) ([\d.]+)", bars[0])]
    assert max(xs) - min(xs) > 0.3 * (right - left)
    labels = re.findall(r"<text [^>]*>([^<]*)</text>", svgs["step-time"])
    assert labels[: labels.index("step")] == ["0", "1", "2"], "whole numbers only"


def test_skipped_steps_are_marked() -> None:
    events = [
        replace(event, gradient_norm=math.nan) if isinstance(event, Step) and event.step in {40, 90} else event
        for event in finished_run()
    ]
    svgs = drawings(events)
    for key in ("loss", "accuracy", "optimization"):
        assert "skipped, gradient not finite (2)" in svgs[key], key
    left, _, right, _ = frame(svgs["loss"])
    crosses = re.findall(r'<use [^>]*x="([\d.]+)" y="[\d.]+" style="fill: var\(--bad\)', svgs["loss"])
    margin = 0.015 * (230 - 1)
    steps = [1 - margin + (float(x) - left) / (right - left) * (230 - 1 + 2 * margin) for x in crosses]
    assert [round(step, 1) for step in steps[:2]] == [40, 90]
    assert "skipped" not in drawings(finished_run())["loss"]


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

"""What the plots show, read from their SVG: every point of the run inside the axes, down to a run of one step."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise

from observability.history import RunHistory
from observability.report.plots import draw_plots
from observability.runlog import CheckpointCommitted, Event, Step
from tests.observability.sample_run import SampleRun, finished_run

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


def test_many_validations_are_drawn_without_markers() -> None:
    svg = drawings(SampleRun(steps=200, steps_per_epoch=2).start().train(1, 200).finish().events)["loss"]
    assert markers(svg, "--validation") == []


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

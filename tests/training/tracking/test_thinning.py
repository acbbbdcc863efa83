"""Which points of a series are delivered, alone and from runs that are longer than what MLflow gets in full."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow import MlflowClient
from pydantic import TypeAdapter

from observability.runlog import Step
from tests.training.tracking.recorded import START, RecordedRun, history, settings, started_run
from tests.training.tracking.test_delivery import deliver
from training.tracking.point import Point
from training.tracking.state import FILE_NAME
from training.tracking.thinning import WINDOW_SAMPLES, Series, Thinner, stride

DENSE = 16
VALUES = st.lists(st.floats(-1e6, 1e6) | st.sampled_from([0.0, math.inf, -math.inf]), min_size=1, max_size=700)
_SERIES = TypeAdapter(Series)


def measurements(values: Iterable[float]) -> list[list[Point]]:
    """A measurement of one metric at each step, from 1."""
    return [[Point("loss", value, 1000 * step, step)] for step, value in enumerate(values, 1)]


def thinned(values: Iterable[float], *, dense: int | None = DENSE) -> list[Point]:
    """The delivered points of a run of one attempt, by step."""
    thinner = Thinner(Series(dense=dense))
    chosen = [point for measurement in measurements(values) for point in thinner.add(measurement)]
    return sorted(chosen + thinner.close(dense=dense), key=lambda point: point.step)


def windows(count: int) -> Iterable[tuple[int, int]]:
    """First and last number of each window up to `count`, counted by hand."""
    edges, stage, distance = [0, DENSE], DENSE, 2
    while edges[-1] < count:
        edges += range(stage + distance * WINDOW_SAMPLES, 4 * stage, distance * WINDOW_SAMPLES)
        stage, distance = 4 * stage, 2 * distance
        edges.append(stage)
    return ((before + 1, min(edge, count)) for before, edge in pairwise(edges) if before < count)


@given(VALUES)
def test_each_window_has_the_envelope_of_all_points(values: list[float]) -> None:
    delivered = thinned(values)
    for first, last in windows(len(values)):
        expected = values[first - 1 : last]
        found = [point.value for point in delivered if first <= point.step <= last]
        assert (min(found), max(found)) == (min(expected), max(expected))


@given(VALUES)
def test_points_are_delivered_once_unchanged_and_the_first_and_last_are_among_them(values: list[float]) -> None:
    delivered = thinned(values)
    steps = [point.step for point in delivered]
    assert len(set(steps)) == len(steps)
    assert {1, len(values)} <= set(steps)
    assert all(point == Point("loss", values[point.step - 1], 1000 * point.step, point.step) for point in delivered)


@given(VALUES, st.data())
def test_a_restart_after_any_measurement_changes_nothing(values: list[float], data: st.DataObject) -> None:
    thinner, chosen = Thinner(Series(dense=DENSE)), list[Point]()
    restarts = data.draw(st.sets(st.integers(1, len(values)), max_size=5))
    for measurement in measurements(values):
        chosen += thinner.add(measurement)
        if measurement[0].step in restarts:
            thinner = Thinner(_SERIES.validate_json(json.dumps(asdict(thinner.series))))
    chosen += thinner.close(dense=DENSE)
    assert sorted(chosen, key=lambda point: point.step) == thinned(values)


@given(VALUES, st.integers(1, 700), st.sampled_from([None, 16, 50]))
def test_another_setting_keeps_the_extremes_and_repeats_nothing(
    values: list[float], end: int, dense: int | None
) -> None:
    thinner, chosen = Thinner(Series(dense=DENSE)), list[Point]()
    for measurement in measurements(values):
        chosen += thinner.add(measurement)
        if measurement[0].step == end:
            chosen += thinner.close(dense=dense)
    chosen += thinner.close(dense=dense)
    assert len({point.step for point in chosen}) == len(chosen)
    assert {min(values), max(values)} <= {point.value for point in chosen}
    assert {min(end, len(values)), len(values)} <= {point.step for point in chosen}


def test_the_points_grow_with_the_square_root_of_the_length() -> None:
    for count in (64, 64 * 4, 64 * 4**3, 64 * 4**5):
        noise = [math.sin(step * step) for step in range(count)]
        even = 3 * math.sqrt(count * 64) / 2 - 64 / 2
        assert even <= len(thinned(noise, dense=64)) <= even + 2 / WINDOW_SAMPLES * (even - 64), count


def test_a_short_series_and_one_without_thinning_are_complete() -> None:
    assert len(thinned(range(DENSE))) == DENSE
    assert len(thinned(range(5000), dense=None)) == 5000


def test_a_spike_of_one_step_is_delivered_at_its_step() -> None:
    values = [1.0] * 100_000
    values[77_776], values[88_887] = 50.0, math.nan
    delivered = thinned(values, dense=100)
    assert len(delivered) < 5500
    assert [point.step for point in delivered if point.value == 50] == [77_777]
    assert [point.step for point in delivered if math.isnan(point.value)] == [88_888]


def test_each_metric_of_a_measurement_has_its_own_extremes() -> None:
    thinner, chosen = Thinner(Series(dense=DENSE)), list[Point]()
    for step in range(1, 10 * DENSE):
        pair: Sequence[Point] = (Point("a", float(step == 101), 0, step), Point("b", float(step == 109), 0, step))
        chosen += thinner.add(pair)
    assert {(point.key, point.step) for point in chosen if point.value} == {("a", 101), ("b", 109)}


def test_the_stride_doubles_when_the_series_has_quadrupled() -> None:
    table = {1: 1, 100: 1, 101: 2, 400: 2, 401: 4, 1600: 4, 1601: 8, 1_000_000: 128}
    assert {number: stride(number, dense=100) for number in table} == table


DENSE_POINTS = 128
"""A power of two, as the columns of the charts below, so that windows do not cross columns."""

COLUMN = 256
SPIKES = {301: 40.0, 1777: 55.0, 3333: -9.0}


def noisy_steps(first: int, last: int) -> Iterator[Step]:
    """Steps with noise, some of which have a spike."""
    for step in range(first, last + 1):
        noise = random.Random(step)
        yield Step(
            time=START + step,
            step=step,
            epoch=1,
            loss=SPIKES.get(step, 2.3 * math.exp(-step / 500) + noise.gauss(0, 0.05)),
            gradient_norm=noise.lognormvariate(0, 1),
            learning_rate=1e-3,
            samples=64,
            seconds=0.01 if step % 100 else 2.0,
        )


def long_run(uri: str, folder: Path, *, dense_points: int | None = DENSE_POINTS) -> RecordedRun:
    """A run that has started."""
    return started_run(settings(folder, uri, dense_points=dense_points))


def envelope(points: Iterable[tuple[int, float]]) -> list[tuple[float, float]]:
    """Smallest and largest value in each column of a chart."""
    columns: dict[int, list[float]] = {}
    for step, value in points:
        columns.setdefault((step - 1) // COLUMN, []).append(value)
    return [(min(values), max(values)) for _, values in sorted(columns.items())]


@pytest.mark.parametrize("is_delivered_between", [False, True])
def test_last_steps_and_spikes_are_delivered_and_a_resumed_run_repeats_nothing(
    uri: str, tmp_path: Path, *, is_delivered_between: bool
) -> None:
    run = long_run(uri, tmp_path)
    run.write(*noisy_steps(1, 1001))
    if is_delivered_between:
        deliver(run)
    run.start(at_step=900)
    run.write(*noisy_steps(901, 2000))
    run.end("interrupted", step=2000)
    loss = history(uri, deliver(run).run_id)["train/loss"]
    assert {1, 1001, 2000} <= {step for step, _ in loss}
    assert {(step, value) for step, value in SPIKES.items() if step <= 2000} < set(loss)
    assert len({step for step, _ in loss}) == len(loss) < 900
    assert envelope(loss)[:3] == envelope(run.expected()["train/loss"])[:3]


@pytest.mark.extended
def test_a_run_of_an_earlier_version_continues(uri: str, tmp_path: Path) -> None:
    run = long_run(uri, tmp_path, dense_points=None)
    run.write(*noisy_steps(1, 1000))
    deliver(run)
    state = json.loads((run.directory / FILE_NAME).read_text())
    del state["series"]
    (run.directory / FILE_NAME).write_text(json.dumps(state))
    run.settings = settings(tmp_path, uri, dense_points=DENSE_POINTS)
    run.start(at_step=1000)
    run.write(*noisy_steps(1001, 2000))
    run.end("interrupted", step=2000)
    steps = [step for step, _ in history(uri, deliver(run).run_id)["train/loss"]]
    assert steps[: 1000 + DENSE_POINTS] == list(range(1, 1001 + DENSE_POINTS))
    assert steps[-1] == 2000
    assert len(steps) < 1600


def test_system_metrics_are_thinned_too(uri: str, tmp_path: Path) -> None:
    run = long_run(uri, tmp_path)
    lines = [{"time": START + step, "step": step, "metrics": {"x": float(step == 888)}} for step in range(1000)]
    (run.directory / "system.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    state = deliver(run)
    stored = MlflowClient(uri).get_metric_history(state.run_id, "system/x")
    assert len(stored) < 550
    assert [point.step for point in stored if point.value] == [888]
    assert stored[-1].step == 999

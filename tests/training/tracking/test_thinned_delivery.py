"""Runs that are longer than what MLflow gets in full."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from mlflow import MlflowClient

from observability.runlog import Step
from tests.training.tracking.recorded import START, RecordedRun, history, settings, started_run
from tests.training.tracking.test_delivery import deliver
from training.tracking.state import FILE_NAME

DENSE = 128
"""A power of two, as the columns of the charts below, so that windows do not cross columns."""

COLUMN = 256
SPIKES = {301: 40.0, 1777: 55.0, 3333: -9.0}

History = Mapping[str, Sequence[tuple[int, float]]]


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


def long_run(uri: str, folder: Path, *, name: str = "run", dense_points: int | None = DENSE) -> RecordedRun:
    """A run that has started."""
    return started_run(settings(folder, uri, name=name, dense_points=dense_points))


def envelope(points: Iterable[tuple[int, float]]) -> list[tuple[float, float]]:
    """Smallest and largest value in each column of a chart."""
    columns: dict[int, list[float]] = {}
    for step, value in points:
        columns.setdefault((step - 1) // COLUMN, []).append(value)
    return [(min(values), max(values)) for _, values in sorted(columns.items())]


def test_deliveries_at_any_time_and_after_restarts_send_the_same_points(uri: str, tmp_path: Path) -> None:
    stored: list[History] = []
    for name, pauses in (("at-once", ()), ("in-pieces", (1, 130, 777, 778, 1990))):
        run, step = long_run(uri, tmp_path, name=name), 1
        for pause in pauses:
            run.write(*noisy_steps(step, pause))
            deliver(run, is_finished=False)
            step = pause + 1
        run.write(*noisy_steps(step, 2000))
        run.end("interrupted", step=2000)
        stored.append(history(uri, deliver(run).run_id))
    assert stored[0] == stored[1]


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


def test_a_run_of_an_earlier_version_continues(uri: str, tmp_path: Path) -> None:
    run = long_run(uri, tmp_path, dense_points=None)
    run.write(*noisy_steps(1, 1000))
    deliver(run)
    state = json.loads((run.directory / FILE_NAME).read_text())
    del state["series"]
    (run.directory / FILE_NAME).write_text(json.dumps(state))
    run.settings = settings(tmp_path, uri, dense_points=DENSE)
    run.start(at_step=1000)
    run.write(*noisy_steps(1001, 2000))
    run.end("interrupted", step=2000)
    steps = [step for step, _ in history(uri, deliver(run).run_id)["train/loss"]]
    assert steps[: 1000 + DENSE] == list(range(1, 1001 + DENSE))
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

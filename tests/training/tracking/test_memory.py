"""The memory of a delivery does not grow with the run."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.training.tracking.recorded import RecordedRun, settings
from training.tracking import delivery
from training.tracking.delivery import Delivery, last_start


class CountingClient:
    """Accepts everything, keeps nothing but the number of metrics."""

    def __init__(self) -> None:
        self.metrics = 0

    def log_batch(self, _run_id: str, *, metrics: Sequence[object] = (), **_: object) -> None:
        self.metrics += len(metrics)

    def get_experiment_by_name(self, _name: str) -> SimpleNamespace:
        return SimpleNamespace(experiment_id="1")

    def search_runs(self, *_: object, **__: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(info=SimpleNamespace(run_id="r"))]

    def get_run(self, _run_id: str) -> SimpleNamespace:
        return SimpleNamespace(data=SimpleNamespace(tags={}, params={}))

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def peak_of_delivery(folder: Path, client: CountingClient, *, steps: int) -> int:
    """Peak of the memory that Python allocates while a log of that many steps is delivered, in bytes."""
    run = RecordedRun(settings(folder, "http://mlflow.example", dense_points=None))
    run.start()
    run.train(1, steps)
    tracemalloc.start()
    try:
        started = last_start(run.directory)
        assert started is not None
        Delivery(run.directory, started).deliver(is_finished=False)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_backlog_of_ten_times_the_steps_takes_no_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = CountingClient()
    monkeypatch.setattr(delivery, "connect", lambda _uri: client)
    peak_of_delivery(tmp_path / "warm-up", client, steps=20)  # first calls allocate what stays
    short = peak_of_delivery(tmp_path / "short", client, steps=500)
    client.metrics = 0
    long = peak_of_delivery(tmp_path / "long", client, steps=5000)
    assert client.metrics > 5000 * 10
    assert long < 1.5 * short

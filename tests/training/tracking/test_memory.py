"""The memory of a delivery does not grow with the run, and torch is not part of it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from observability.runlog import Phase
from tests.training.tracking.recorded import RecordedRun, settings
from tests.training.tracking.test_follow import PATIENCE, eventually, state_of
from training.tracking import delivery
from training.tracking.delivery import Delivery, last_start
from training.tracking.process import FollowerProcess

STEPS = 4000
RESIDENT_MEGABYTES = 400
"""MLflow and its database take 250; torch takes 500 more."""


def peak_of_process(pid: int) -> float:
    """Largest resident set of a process so far, in megabytes."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


@pytest.mark.long
def test_a_follower_stays_small_until_its_model_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = RecordedRun(settings(tmp_path, f"sqlite:///{tmp_path / 'mlflow.db'}"))
    run.start()
    follower = FollowerProcess(run.directory)
    run.train(1, STEPS)
    eventually(lambda: state_of(run).newest_step.get("train") == STEPS)
    run.write(Phase(name="finish", process="rank 0"))
    size = (run.directory / "events.jsonl").stat().st_size
    eventually(lambda: state_of(run).offset == size)
    assert peak_of_process(follower.pid) < RESIDENT_MEGABYTES
    assert "libtorch" not in Path(f"/proc/{follower.pid}/maps").read_text(encoding="utf-8")
    run.end(step=STEPS)
    assert follower.finish(timeout=PATIENCE).model == "mlp-digits/1"


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

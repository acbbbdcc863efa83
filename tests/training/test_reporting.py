"""The reports of rank 0: events in the run's log, and the same as metrics over HTTP."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path

import pytest

from observability.runlog import Notice, Step, TrainingStarted, read_all, select
from training.config.schema import MetricsSettings
from training.errors import PreflightError
from training.reporting import Reporter, reporting

STARTED = TrainingStarted(
    world=1,
    start_step=0,
    total_steps=10,
    steps_per_epoch=5,
    parameters=3,
    train_samples=20,
    dataset_fingerprint="f" * 64,
)
STEP = Step(
    step=1,
    epoch=1,
    loss=2.25,
    metrics={"accuracy": 0.5},
    gradient_norm=1.0,
    learning_rate=0.1,
    samples=4,
    seconds=0.01,
    rank_seconds=[0.005],
)


def test_the_log_is_complete_and_has_the_address_of_the_metrics_which_are_served_in_the_block(tmp_path: Path) -> None:
    with reporting(tmp_path, MetricsSettings(exporter="prometheus")) as reporter:
        reporter.emit(STARTED)
        reporter.emit(STEP)
        (started,) = select(read_all(tmp_path), TrainingStarted)
        with urllib.request.urlopen(started.metrics_url, timeout=60) as answer:  # noqa: S310 - our own
            page = answer.read().decode()
    assert any(line.endswith(" 2.25") for line in page.splitlines())
    assert read_all(tmp_path) == [started, STEP]
    host, _, port = started.metrics_url.removeprefix("http://").partition("/")[0].partition(":")
    assert host == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=10)


def test_a_port_taken_since_the_preflight_is_refused_with_port_0_as_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings = MetricsSettings(exporter="prometheus", port=server.getsockname()[1])
        with pytest.raises(PreflightError, match=str(settings.port)) as caught, reporting(tmp_path, settings):
            pass
    assert "metrics.port=0" in caught.value.remedy


def test_the_reporter_of_other_ranks_drops_events(tmp_path: Path) -> None:
    Reporter().emit(Notice(level="warning", message="unheard"))
    assert list(tmp_path.iterdir()) == []

"""The process that registers a model: its answers, and its end without one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.engines.ports import free_port
from tests.training.tracking.recorded import settings, started_run
from training.errors import PlatformError, SettingsError
from training.tracking.registration import ModelRegistration
from training.tracking.state import StoreUnavailableError


def test_an_unavailable_store_and_a_refused_model_are_told_apart(tmp_path: Path) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    run = started_run(settings(tmp_path, uri))
    run.end()
    with pytest.raises(StoreUnavailableError):
        ModelRegistration().register(run.directory, uri=uri, run_id="r", name="n")
    description = run.directory / "model" / "model.json"
    description.write_text(description.read_text().replace('"mlp"', '"mlpp"'))
    with pytest.raises(SettingsError, match="mlpp"):
        ModelRegistration().register(run.directory, uri=f"sqlite:///{tmp_path / 'mlflow.db'}", run_id="r", name="n")


def test_a_process_that_is_killed_is_an_error_that_says_so_and_a_cancelled_one_ends(tmp_path: Path) -> None:
    registration = ModelRegistration()
    os.kill(registration._process.pid, signal.SIGKILL)
    with pytest.raises(PlatformError, match="ended with status -9"):
        registration.register(tmp_path, uri="x", run_id="r", name="n")
    cancelled = ModelRegistration()
    cancelled.cancel()
    assert cancelled._process.returncode is not None

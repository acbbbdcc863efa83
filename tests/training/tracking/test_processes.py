"""The processes beside a run: MLflow's client in them, the state of a delivery and its lock, the registration of models, and the UI."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from tests.engines.ports import free_port
from tests.training.tracking.recorded import settings, started_run
from training.errors import PlatformError, SettingsError
from training.tracking.registration import ModelRegistration
from training.tracking.state import StoreUnavailableError, TrackingState, delivery_lock

REPORT = """
import training.tracking.delivery
from mlflow.telemetry import get_telemetry_client
from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_MAX_RETRIES
print(get_telemetry_client(), MLFLOW_HTTP_REQUEST_MAX_RETRIES.get())
"""

LIGHT = """
import sys
import training.tracking.follow, training.tracking.sync, training.tracking.ui
print(*sorted({"torch", "ray", "mlflow", "numpy", "sqlalchemy"} & set(sys.modules)))
"""

# The last two disable telemetry, too.
_CONFIGURED = (
    "MLFLOW_DISABLE_TELEMETRY",
    "DO_NOT_TRACK",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES",
    "PYTEST_CURRENT_TEST",
    "CI",
)


def run_script(script: str) -> str:
    """The output of a script in a process without MLflow configuration."""
    environment = {name: value for name, value in os.environ.items() if name not in _CONFIGURED}
    environment["PYTHONPATH"] = str(Path(__file__).parents[3])
    command = [sys.executable, "-c", script]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


def test_telemetry_and_retries_are_disabled() -> None:
    assert run_script(REPORT) == "None 0"


def test_the_modules_for_driver_and_command_line_import_no_heavy_package() -> None:
    assert run_script(LIGHT) == ""


HOLD = """
import sys
import threading
from pathlib import Path
from training.tracking.state import delivery_lock
with delivery_lock(Path(sys.argv[1]), wait=True):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_saved_state_loads_equal_and_two_runs_have_different_keys(tmp_path: Path) -> None:
    assert TrackingState.load(tmp_path) is None
    state = TrackingState(uri="http://host", run_id="r", offset=7, newest_step={"train": 3}, status="RUNNING")
    state.save(tmp_path)
    assert TrackingState.load(tmp_path) == state
    assert TrackingState(uri="x").run_key != TrackingState(uri="x").run_key


def test_an_interrupted_save_keeps_the_previous_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    state = TrackingState(uri="http://host", offset=7)
    state.save(tmp_path)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        TrackingState(uri="http://host", offset=8).save(tmp_path)
    assert TrackingState.load(tmp_path) == state


def test_one_process_at_a_time_holds_the_lock_until_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with delivery_lock(tmp_path, wait=False) as is_acquired:
            assert not is_acquired
        threading.Timer(0.1, other.kill).start()
        with delivery_lock(tmp_path, wait=True) as is_acquired:
            assert is_acquired


@pytest.mark.extended
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


# The tests may run under nohup, which ignores SIGHUP.
SERVE = (
    "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); from training.tracking.ui import serve_ui; serve_ui()"
)


@pytest.mark.extended
def test_the_ui_is_served_until_the_terminal_is_closed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", SERVE]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as ui:
        assert ui.stdout is not None
        assert ui.stdout.readline() == "starting MLflow on .local/mlflow…\n"
        address = ui.stdout.readline().split()[1]
        port = address.removeprefix("http://127.0.0.1:")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as page:
            assert b"<title>MLflow</title>" in page.read()
        ui.send_signal(signal.SIGHUP)
        assert ui.wait(timeout=60) == 0
    assert (tmp_path / ".local/mlflow/mlflow.db").exists()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/")

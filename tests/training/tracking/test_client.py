"""The MLflow client as the follower configures it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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

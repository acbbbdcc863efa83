"""MLflow's client as the follower sets it up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPORT = """
import importlib, sys
importlib.import_module(sys.argv[1])
from mlflow.telemetry import get_telemetry_client
from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_MAX_RETRIES
print(get_telemetry_client(), MLFLOW_HTTP_REQUEST_MAX_RETRIES.get())
"""

LIGHT = """
import sys
import training.tracking.follow, training.tracking.sync, training.tracking.ui
print(*sorted({"torch", "ray", "mlflow", "numpy", "sqlalchemy"} & set(sys.modules)))
"""

# The last two make MLflow keep quiet by itself.
_CHOSEN = ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK", "MLFLOW_HTTP_REQUEST_MAX_RETRIES", "PYTEST_CURRENT_TEST", "CI")


def output(script: str, *arguments: str) -> str:
    """What a script prints in a process in which nobody has chosen anything for MLflow."""
    environment = {name: value for name, value in os.environ.items() if name not in _CHOSEN}
    environment["PYTHONPATH"] = str(Path(__file__).parents[3])
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


@pytest.mark.parametrize("module", ["client", "delivery", "model"])
def test_mlflow_tells_nobody_and_does_not_retry_whichever_module_imports_it(module: str) -> None:
    assert output(REPORT, f"training.tracking.{module}") == "None 0"


def test_what_the_driver_and_the_command_line_import_is_light() -> None:
    assert output(LIGHT) == ""

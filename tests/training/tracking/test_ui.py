"""MLflow's UI on the embedded store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

# The tests may run under nohup, which ignores SIGHUP.
SERVE = (
    "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); from training.tracking.ui import serve_ui; serve_ui()"
)


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

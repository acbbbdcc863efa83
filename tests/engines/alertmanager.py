"""A real Alertmanager on loopback, and amtool, which checks its configuration."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import urllib3

from infra.lifecycle.sandbox.modules import ALERTMANAGER
from tests.engines.built import find_program
from tests.engines.ports import free_port
from tests.engines.report_table import ran, skipped
from tests.engines.servers import answers, running

NAME = "Alertmanager"
_TOO_OLD = "field url_file not found"
"""Error of Alertmanager before 0.26 for a webhook whose URL is in a file."""


def _enable(variable: str) -> str:
    return f"make engines, install Alertmanager 0.26 or newer, or set {variable}=/path"


def _program(name: str, *also: str) -> str:
    """Find a program; skips without it."""
    found = find_program(ALERTMANAGER, name, *also)
    if found is None:
        skipped(NAME, f"no {name} on PATH", _enable(name.upper()))
    return str(found)


def complaints(config: Mapping[str, Any], folder: Path) -> str:
    """Errors that `amtool check-config` finds in a configuration; empty if there are none."""
    amtool = _program("amtool")
    file = folder / "checked.yml"
    file.write_text(json.dumps(config), encoding="utf-8")
    checked = subprocess.run([amtool, "check-config", str(file)], capture_output=True, text=True, check=False)
    errors = "" if checked.returncode == 0 else checked.stdout + checked.stderr
    if _TOO_OLD in errors:
        skipped(NAME, f"{amtool} is too old", _enable("AMTOOL"))
    ran(NAME)
    return errors


class Alertmanager:
    """A running server."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def fire(self, **labels: str) -> None:
        """Send an alert as Prometheus does."""
        self._send({"labels": labels})

    def resolve(self, **labels: str) -> None:
        """Send that an alert is over."""
        self._send({"labels": labels, "endsAt": datetime.now(UTC).isoformat()})

    def inhibited(self) -> dict[str, bool]:
        """Whether each firing warning is inhibited, by its claim."""
        answer = urllib3.request("GET", f"{self._url}/api/v2/alerts", retries=False)
        warnings = [one for one in answer.json() if one["labels"]["severity"] == "warning"]
        return {one["labels"]["persistentvolumeclaim"]: bool(one["status"]["inhibitedBy"]) for one in warnings}

    def _send(self, alert: Mapping[str, Any]) -> None:
        answer = urllib3.request("POST", f"{self._url}/api/v2/alerts", json=[alert], retries=False)
        assert answer.status == 200, answer.data


@contextmanager
def alertmanager(config: Mapping[str, Any], folder: Path) -> Iterator[Alertmanager]:
    """Run a server with this configuration and AWS credentials in its environment."""
    program, port = _program("alertmanager", "prometheus-alertmanager"), free_port()
    file, log = folder / "alertmanager.yml", folder / "alertmanager.log"
    file.write_text(json.dumps(config), encoding="utf-8")
    options = [f"--config.file={file}", f"--storage.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}

    def is_ready() -> bool:
        if _TOO_OLD in log.read_text():
            skipped(NAME, f"{program} is too old", _enable("ALERTMANAGER"))
        return answers(f"http://127.0.0.1:{port}/-/ready")

    command = [program, *options, "--cluster.listen-address=", "--log.level=debug"]
    with running(command, log=log, is_ready=is_ready, env={**os.environ, **keys}):
        ran(NAME)
        yield Alertmanager(port)

"""Small real searches, each by a driver of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from infra.spec.yaml_text import inline
from tests.engines import report_table

ROOT = Path(__file__).resolve().parents[2]

_SHARED = {
    "model": {"name": "simple_cnn", "options": {"width": 8}},
    "scale": {"workers": 1},
    "metrics": {"exporter": "none"},
    "tracking": {"enabled": False},
}


def write_search(folder: Path, search: dict[str, Any], *, epochs: int, **sections: dict[str, Any]) -> Path:
    """A configuration in a folder."""
    shared: dict[str, Any] = {**_SHARED, "loop": {"epochs": epochs}, **sections}
    shared["search"] = {"directory": str(folder / "searches"), **search}
    file = folder / "search.yaml"
    file.write_text("".join(f"{name}: {inline(section)}\n" for name, section in shared.items()), encoding="utf-8")
    return file


def driver_command(file: Path, *arguments: str) -> list[str]:
    """The command of a driver."""
    return [sys.executable, "-m", "tune", "search", "--config", str(file), "--name", "search", *arguments]


def driver_environment() -> dict[str, str]:
    """Its environment variables."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def search_in(folder: Path, search: dict[str, Any], *, epochs: int, **sections: dict[str, Any]) -> Path:
    """Search to the end; returns the search's folder."""
    file = write_search(folder, search, epochs=epochs, **sections)
    ended = subprocess.run(
        driver_command(file),
        cwd=folder,
        env=driver_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report_table.ran("Ray cluster")
    return folder / "searches" / "search"

"""A small generated suite with the plugins of this one, which tests of these plugins run."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_SETTINGS = """
[pytest]
testpaths = suite
addopts = -rN -p no:cacheprovider -n auto --dist loadfile --no-loadscope-reorder
timeout = 60
"""
_CONFTEST = """
import os
import pytest
from tests import distribution
from tests.engines import report_table
from tests.engines.engines_build import is_build_running

pytest_plugins = ["tests.distribution", "tests.long_tests", "tests.end_of_run"]

def pytest_xdist_auto_num_workers(config):
    return min(2, 2 * distribution.pytest_xdist_auto_num_workers(config))  # two also on a machine with one CPU

@pytest.fixture(scope="session")
def s3_api():
    report_table.ran("S3 API")

@pytest.fixture(scope="session")
def control_plane():
    assert not is_build_running(os.environ)

@pytest.fixture(autouse=True)
def where(request):
    with open("where", "a") as file:
        file.write(f"{request.path.stem} {os.environ.get('PYTEST_XDIST_WORKER', 'here')}\\n")
"""


class Suite:
    """A few test files that record their process."""

    def __init__(self, folder: Path, **files: str) -> None:
        self._folder = folder
        (folder / "suite").mkdir(parents=True)
        (folder / "pytest.ini").write_text(_SETTINGS)
        (folder / "conftest.py").write_text(_CONFTEST)
        for name, text in files.items():
            (folder / "suite" / f"test_{name}.py").write_text(text)
        self.engines = {"RTP_ENGINES": str(folder / "engines")}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start pytest."""
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=self._folder,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **self.engines},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> str:
        """Run pytest to its end; returns its output."""
        ended = self.start(*arguments)
        printed, _ = ended.communicate(timeout=120)
        assert ended.returncode == 0, printed
        return printed

    def processes(self) -> dict[str, set[str]]:
        """Processes of the tests, by file."""
        file = self._folder / "where"
        found = defaultdict(set)
        for line in file.read_text().splitlines() if file.exists() else []:
            name, process = line.split()
            found[name.removeprefix("test_")].add(process)
        return found

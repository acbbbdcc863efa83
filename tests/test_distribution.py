"""The distribution of tests among processes, on a small generated suite."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from infra.lifecycle.sandbox.modules import cache_root

ROOT = Path(__file__).resolve().parents[1]
_SETTINGS = """
[pytest]
testpaths = suite
addopts = -p no:cacheprovider -n auto --dist loadfile --no-loadscope-reorder
timeout = 60
"""
_CONFTEST = """
import os
import pytest
from tests import distribution
from tests.engines import report_table
from tests.engines.engines_build import is_build_running

pytest_plugins = ["tests.distribution", "tests.long_tests"]

def pytest_xdist_auto_num_workers(config):
    return min(2, 2 * distribution.pytest_xdist_auto_num_workers(config))  # two also on a machine with one CPU

def pytest_terminal_summary(terminalreporter):
    for line in report_table.table():
        terminalreporter.write_line(line)

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
_PLAIN = "import pytest\n@pytest.mark.parametrize('one', range(3))\ndef test_it(one): pass\n"
_WITH_S3 = "import pytest\n@pytest.mark.parametrize('one', range(3))\ndef test_it(s3_api, one): pass\n"
_WITH_KUBERNETES = "def test_it(control_plane): pass\n"
_WITH_PROMETHEUS = "import pytest\n@pytest.mark.monitoring\ndef test_it(control_plane): pass\n"


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


def test_tests_of_one_file_or_one_server_run_in_one_process(tmp_path: Path) -> None:
    suite = Suite(tmp_path, a=_WITH_S3, b=_WITH_S3, c=_PLAIN, d=_PLAIN)
    printed = suite.run()
    where = suite.processes()
    assert all(len(processes) == 1 for processes in where.values())
    assert where["a"] == where["b"]
    assert set.union(*where.values()) == {"gw0", "gw1"}
    assert [line.split()[-1] for line in printed.splitlines() if line.startswith("S3 API")] == ["ran"]


@pytest.mark.parametrize("chosen", [["suite/test_a.py", "suite/test_b.py"], ["-k", "test_it"]])
def test_selected_tests_run_in_one_process(tmp_path: Path, chosen: list[str]) -> None:
    suite = Suite(tmp_path, a=_PLAIN, b=_PLAIN)
    suite.run(*chosen)
    assert suite.processes() == {"a": {"here"}, "b": {"here"}}


@pytest.mark.parametrize("waiting", [_WITH_KUBERNETES, _WITH_PROMETHEUS])
def test_tests_that_need_what_is_built_wait_for_it_while_others_run(tmp_path: Path, waiting: str) -> None:
    suite = Suite(tmp_path, a=waiting, b=_PLAIN)
    lock = cache_root(suite.engines) / "lock"
    lock.parent.mkdir()
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        running = suite.start()
        while "b" not in suite.processes():
            assert running.poll() is None, running.communicate()[0]
            time.sleep(0.01)
        assert "a" not in suite.processes()
    printed, _ = running.communicate(timeout=120)
    assert running.returncode == 0, printed
    assert "make engines is running: the tests that need Kubernetes or Prometheus wait for it" in printed
    assert "a" in suite.processes()


_LONG = "import pytest\n@pytest.mark.long\n@pytest.mark.parametrize('one', range(2))\ndef test_it(one): pass\n"


@pytest.mark.parametrize(
    ("share", "passed"),
    [
        ([], 3),
        (["--long", "0"], 3),
        (["--long", "1"], 9),
        (["--long", "1/2"], 7),
        (["--long", "2/2"], 5),
        (["suite/test_long.py"], 2),
        (["-k", "test_it"], 9),
        (["suite/test_long.py", "suite/test_later.py", "--long", "2/2"], 2),
    ],
)
def test_the_whole_suite_has_the_share_of_the_long_tests_and_chosen_tests_have_all(
    tmp_path: Path, share: list[str], passed: int
) -> None:
    printed = Suite(tmp_path, a=_PLAIN, later=_LONG, long=_LONG, longest=_LONG).run(*share)
    assert f" {passed} passed" in printed


@pytest.mark.parametrize("share", ["2", "0/3", "4/3", "1/0", "half", "-1"])
def test_a_share_that_is_none_is_refused(tmp_path: Path, share: str) -> None:
    suite = Suite(tmp_path, a=_PLAIN)
    refused = suite.start(f"--long={share}")
    printed, _ = refused.communicate(timeout=60)
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"'{share}' is no share of the long tests; give 0, 1 or K/N, such as 2/4" in printed
    assert suite.processes() == {}

"""The suite's own choice of tests, its progress and its end, on small generated suites."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.engines import report_table
from tests.selection import changed_folders

pytestmark = pytest.mark.extended

pytest_plugins = ("pytester",)

ROOT = Path(__file__).resolve().parents[1]
Run = Callable[..., pytest.RunResult]

_MIXED = """
import pytest

@pytest.fixture
def real_nodes(): ...

def test_plain(): ...

@pytest.mark.extended
@pytest.mark.parametrize("one", range(2))
def test_marked(one): ...

def test_of_a_server(real_nodes): ...

@pytest.mark.core
def test_of_a_server_that_runs_always(real_nodes): ...
"""
_EXTENDED = """
import pytest

pytestmark = pytest.mark.extended

def test_it(): ...
"""
_ENDS = """
import pytest
from tests.engines.report_table import ran, skipped

@pytest.mark.parametrize("one", range(3))
def test_without_a_server(one):
    skipped("Prometheus", "none on PATH", "apt-get install prometheus")

def test_of_a_program():
    ran("S3 API")
    assert False, "\\n".join(f"line {number}" for number in range(40))
"""
_HANGS = """
import subprocess, sys, time

def test_that_passes(): ...

def test_that_starts_a_program_of_its_own():
    subprocess.Popen(["sleep", "1234.5"], start_new_session=True)
    open("started", "w")
    time.sleep(1000)
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the suite of the folder in this process."""
    monkeypatch.setattr(report_table, "RAN", set())
    monkeypatch.setattr(report_table, "ABSENT", set())

    def run(*arguments: str, **files: str) -> pytest.RunResult:
        pytester.makepyfile(**{f"test_{name}": text for name, text in files.items()})
        plugins = ("-p", "tests.selection", "-p", "tests.reporting", "-p", "no:cacheprovider", "-n0", "-rN")
        return pytester.runpytest_inprocess(*plugins, *arguments)

    return run


@pytest.mark.parametrize(
    ("arguments", "passed", "line"),
    [
        ([], 2, "2 tests; 3 left out: make test ALL=1"),
        (["."], 2, '2 tests; 3 left out: make test ALL=1 ARGS="."'),
        (["-k", "plain"], 1, "1 test"),
        (["--all", "1"], 6, "6 tests"),
        (["test_mixed.py"], 5, "5 tests"),
        (["test_extended.py"], 1, "1 test"),
        (["--all", "1", "-k", "marked"], 2, "2 tests"),
    ],
)
def test_the_core_runs_and_all_or_a_named_file_where_asked(
    run: Run, arguments: list[str], passed: int, line: str
) -> None:
    ended = run(*arguments, mixed=_MIXED, extended=_EXTENDED)
    assert ended.parseoutcomes()["passed"] == passed
    assert line in ended.outlines


def test_parts_are_disjoint_and_together_all(run: Run) -> None:
    files = {f"extended_{number}": _EXTENDED for number in range(6)}
    parts = [run("--all", f"{part}/3", plain="def test_core(): ...", **files) for part in (1, 2, 3)]
    assert sum(part.parseoutcomes()["passed"] - 1 for part in parts) == 6


@pytest.mark.parametrize(
    "arguments", [["--all", "2"], ["--all", "4/3"], ["--all", "some"], ["nowhere"], ["--since", "no-such"]]
)
def test_a_choice_that_does_not_exist_is_refused(run: Run, arguments: list[str]) -> None:
    ended = run(*arguments, mixed=_MIXED)
    assert ended.ret == pytest.ExitCode.USAGE_ERROR
    assert arguments[-1] in str(ended.stderr)


def test_a_change_adds_the_tests_of_its_folders(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for file in ("tests/training/launch/test_a.py", "training/launch/agent/a.py", "training/loop.py", "docs/a.md"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    (tmp_path / "training/launch/agent/a.py").write_text("A = 1\n")
    (tmp_path / "docs/a.md").write_text("A document.\n")
    subprocess.run([*git, "commit", "-qam", "second"], cwd=tmp_path, check=True)
    assert changed_folders("HEAD~1", tmp_path) == {tmp_path / "tests/training/launch"}


def test_a_failure_is_printed_with_one_line_of_reason_and_skips_last(run: Run) -> None:
    ended = run(ends=_ENDS)
    assert ended.ret == pytest.ExitCode.TESTS_FAILED
    assert "FAILED test_ends.py::test_of_a_program: AssertionError: line 0" in ended.outlines
    assert "real services: S3 API" in ended.outlines
    assert "   3  Prometheus: none on PATH; to enable: apt-get install prometheus" in ended.outlines
    assert "    … 35 lines …" in ended.outlines


@contextmanager
def started(folder: Path, suite: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`python -m tests` on a suite of one file, in a process group of its own; leaves nothing temporary."""
    (folder / "conftest.py").write_text("from tests.conftest import *\npytest_plugins = ['tests.reporting']\n")
    (folder / "test_it.py").write_text(suite)
    (folder / "temporary").mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "tests", "-p", "tests.selection", "-p", "tests.distribution", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "temporary")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    ) as running:
        yield running
    assert list((folder / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    ("processes", "number", "stop"),
    [("0", signal.SIGINT, os.killpg), ("2", signal.SIGTERM, os.kill), ("0", signal.SIGHUP, os.killpg)],
)
def test_a_stop_ends_everything_that_tests_started(
    tmp_path: Path, processes: str, number: signal.Signals, stop: Callable[[int, int], None]
) -> None:
    """As a terminal does, or what ends a job; also by a signal to nothing but the first process."""
    with started(tmp_path, _HANGS, "-n", processes) as running:
        while not (tmp_path / "started").exists():
            assert running.poll() is None, running.communicate()[0]
            time.sleep(0.05)
        family = psutil.Process(running.pid).children(recursive=True)
        assert any("1234.5" in process.cmdline() for process in family)
        stop(running.pid, number)
        printed, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "stopped by you; 1 of 2 passed" in printed
    assert [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.parametrize(
    ("suite", "arguments", "status", "line"),
    [
        ("import os\ndef test(): os._exit(0)", (), 3, "the tests' process has ended without a result"),
        ("def test(): assert False, 'why'", ("-x", "-n", "2"), 2, "FAILED test_it.py::test: AssertionError: why"),
    ],
)
def test_a_session_has_the_status_of_its_tests(
    tmp_path: Path, suite: str, arguments: tuple[str, ...], status: int, line: str
) -> None:
    with started(tmp_path, suite, *arguments) as running:
        printed, _ = running.communicate(timeout=60)
    assert running.returncode == status, printed
    assert line in printed
    assert "stopped by you" not in printed

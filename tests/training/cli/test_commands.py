"""The commands that look at runs, and how the command line ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from observability.runlog import RunEnded, RunLogWriter, RunStarted, Step
from tests.processes import run_command
from tests.training.cli.command import ROOT, ask, ask_here
from tests.training.runs import run_alone, small_settings
from training.config.schema import TrainingSettings
from training.rundir import RunDirectory


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two runs, of which `newer` was trained last."""
    root = tmp_path_factory.mktemp("runs")
    for name in ("older", "newer"):
        run = RunDirectory(root / name)
        settings = small_settings(loop={"max_steps": 5})
        run.path.mkdir()
        run.write_settings(settings)
        with RunLogWriter(run.path) as log:
            log.write(RunStarted(run=name, settings=settings.model_dump(mode="json"), environment={}))
            run_alone(settings, run.path)
            log.write(RunEnded(status="done", step=5))
    return root


def test_the_commands_show_the_newest_run_first_or_the_named_one(root: Path) -> None:
    def said(*words: str) -> str:
        answer = ask_here(*words, "--root", str(root))
        assert answer.status == 0
        return answer.out

    _, *lines = said("jobs").splitlines()
    assert [line.split()[:3] for line in lines] == [["newer", "done", "5/5"], ["older", "done", "5/5"]]
    events = [json.loads(line) for line in said("logs").splitlines()]
    assert (events[0]["run"], events[-1]["kind"]) == ("newer", RunEnded.kind)
    assert sum(event["kind"] == Step.kind for event in events) == 5
    assert said("logs", "older", "--rank", "0") == (root / "older" / "logs" / "rank-0.jsonl").read_text()
    assert "older" in said("monitor", "older", "--once")
    page = Path(said("report", "older").strip())
    assert page == root / "older" / "report.html"
    assert "older" in page.read_text(encoding="utf-8")


def test_schema_prints_the_json_schema() -> None:
    assert set(json.loads(ask_here("schema").out)["properties"]) == set(TrainingSettings.model_fields)


def test_commands_that_look_at_runs_import_nothing_heavy(root: Path) -> None:
    for command in ("jobs", "logs", "verify"):
        answer = ask(command, "--root", str(root))
        assert (answer.status, answer.heavy) == (0, frozenset()), command


def test_a_closed_output_pipe_is_not_an_error(root: Path) -> None:
    """As in `make logs | head -1`."""
    shown = subprocess.Popen(
        [sys.executable, "-m", "training", "logs", "--root", str(root)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert shown.stdout is not None
    assert shown.stderr is not None
    shown.stdout.close()
    assert shown.stderr.read() == b""
    assert shown.wait(timeout=60) == 0


_PROGRAM = """
import os, runpy, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)


class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "infra.spec.command_line":
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Interrupt())
sys.argv = [sys.argv[1], "--help"]
runpy.run_module(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("program", ["training", "infra.lifecycle"])
def test_an_interrupt_during_the_imports_prints_nothing(program: str) -> None:
    ended = run_command([sys.executable, "-c", _PROGRAM, program], cwd=ROOT)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")

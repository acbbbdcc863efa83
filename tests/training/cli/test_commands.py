"""The commands that look at runs, and how the command line ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from observability.runlog import RunEnded, RunLogWriter, RunStarted, Step
from tests.training.cli.command import ROOT, ask
from tests.training.runs import run_alone, small_settings
from training.cli import main
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


def run_command(root: Path, *words: str) -> int:
    return main([*words, "--root", str(root)])


def test_jobs_lists_the_newest_run_first(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(root, "jobs") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [["newer", "done", "5/5"], ["older", "done", "5/5"]]


def test_logs_prints_the_events_of_the_newest_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(root, "logs") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[0]["run"] == "newer"
    assert events[-1]["kind"] == RunEnded.kind
    assert sum(event["kind"] == Step.kind for event in events) == 5


def test_logs_prints_a_rank_s_own_log_on_request(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(root, "logs", "older", "--rank", "0") == 0
    assert capsys.readouterr().out == (root / "older" / "logs" / "rank-0.jsonl").read_text(encoding="utf-8")


def test_monitor_once_prints_the_current_state_and_exits(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(root, "monitor", "older", "--once") == 0
    assert "older" in capsys.readouterr().out


def test_report_writes_the_page_and_prints_its_path(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(root, "report", "older") == 0
    page = Path(capsys.readouterr().out.strip())
    assert page == root / "older" / "report.html"
    assert "older" in page.read_text(encoding="utf-8")


def test_schema_prints_the_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert set(json.loads(capsys.readouterr().out)["properties"]) == set(TrainingSettings.model_fields)


@pytest.mark.parametrize("command", [["jobs"], ["logs"], ["verify"]])
def test_commands_that_look_at_runs_import_nothing_heavy(root: Path, command: list[str]) -> None:
    answer = ask(*command, "--root", str(root))
    assert answer.status == 0
    assert answer.heavy == set()


def test_an_unknown_command_exits_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["trian"])
    assert caught.value.code == 2
    assert "trian" in capsys.readouterr().err


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

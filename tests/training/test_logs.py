"""Logs for machines and for people, and the reports of rank 0."""

from __future__ import annotations

import io
import json
import logging
import socket
import subprocess
import sys
import urllib.request
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from observability.runlog import Notice, TrainingStarted, read_all, select
from tests.training.runs import done_step, training_started
from training import logs
from training.config.schema import MetricsSettings
from training.errors import PreflightError
from training.reporting import Reporter, reporting


@pytest.fixture
def console(tmp_path: Path) -> Iterator[io.StringIO]:
    """Logging of rank 1 of run `r` to a file and to a console."""
    stream = io.StringIO()
    logs.configure(tmp_path / "logs" / "rank-1.jsonl", run="r", rank=1, console=stream)
    yield stream
    logs.set_step(None)
    root = logging.getLogger()
    for handler in logs._installed:
        root.removeHandler(handler)
        handler.close()
    logs._installed.clear()
    logging.captureWarnings(capture=False)


def lines(tmp_path: Path) -> list[dict[str, Any]]:
    """The records in the file."""
    return [json.loads(line) for line in (tmp_path / "logs" / "rank-1.jsonl").read_text().splitlines()]


def test_a_record_is_one_line_of_json_with_run_rank_and_step(tmp_path: Path, console: io.StringIO) -> None:
    logs.set_step(17)
    before = datetime.now(UTC) - timedelta(milliseconds=1)  # the record's time is cut to milliseconds
    logging.getLogger("training.x").info("two\nlines %d", 5)
    (record,) = lines(tmp_path)
    assert before <= datetime.fromisoformat(record.pop("time")) <= datetime.now(UTC)
    assert record == {
        "level": "info",
        "logger": "training.x",
        "message": "two\nlines 5",
        "run": "r",
        "rank": 1,
        "step": 17,
    }


def test_file_and_console_have_the_traceback_of_an_exception(tmp_path: Path, console: io.StringIO) -> None:
    try:
        raise ZeroDivisionError("a reason")
    except ZeroDivisionError:
        logging.getLogger("training.x").exception("it failed")
    assert "ZeroDivisionError: a reason" in lines(tmp_path)[0]["exception"]
    assert "ZeroDivisionError: a reason" in console.getvalue()


def test_the_console_shows_warnings_in_one_line_and_no_lower_levels(tmp_path: Path, console: io.StringIO) -> None:
    """Of other packages the file has no lower levels either."""
    logs.set_step(3)
    logging.getLogger("training.x").info("detail")
    logging.getLogger("somebody.else").info("chatter")
    logging.getLogger("somebody.else").warning("look here")
    assert console.getvalue()[8:] == " WARNING rank 1 step 3: look here\n"
    assert [record["message"] for record in lines(tmp_path)] == ["detail", "look here"]


def test_python_warnings_are_logged(tmp_path: Path, console: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old way", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(capture=False)
    assert "DeprecationWarning: old way" in lines(tmp_path)[0]["message"]


def test_configuring_again_replaces_the_first_file(tmp_path: Path, console: io.StringIO) -> None:
    logs.configure(tmp_path / "second.jsonl", run="r2", rank=None, console=console)
    logging.getLogger("training.x").info("hello")
    assert lines(tmp_path) == []
    record = json.loads((tmp_path / "second.jsonl").read_text())
    assert (record["run"], record["rank"]) == ("r2", None)


CHILD = """
import logging, pathlib, sys
from training import logs
logs.configure(pathlib.Path(sys.argv[1]), run="r", rank=3)
logging.getLogger("training.x").info("hello")
"""


def run_beneath(place: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A rank under a shell, as in a container; its own output goes to files, as under Ray."""
    script = f'RTP_POD_LOG={place} "$0" -c "$1" "$2" > "$3/out" 2> "$3/err"; exit $?'
    command = ["/bin/bash", "-c", script, sys.executable, CHILD, str(folder / "rank-3.jsonl"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])


def test_in_a_pod_the_container_log_has_the_same_lines_as_the_file(tmp_path: Path) -> None:
    container = run_beneath("/proc/$$/fd/1", tmp_path)
    assert container.stdout == (tmp_path / "rank-3.jsonl").read_text()
    assert json.loads(container.stdout)["message"] == "hello"


def test_a_rank_whose_pod_has_no_log_continues_with_a_message(tmp_path: Path) -> None:
    assert run_beneath("/nowhere/log", tmp_path).stdout == ""
    assert json.loads((tmp_path / "rank-3.jsonl").read_text())["message"] == "hello"
    assert "RTP_POD_LOG=/nowhere/log cannot be written: No such file" in (tmp_path / "err").read_text()


def test_a_record_after_a_line_that_a_full_disk_cut_off_has_its_own_line(tmp_path: Path, console: io.StringIO) -> None:
    path = tmp_path / "torn.jsonl"
    path.write_text('{"time": "2026-11')
    logs.configure(path, run="r", rank=1, console=console)
    logging.getLogger("training").warning("resumed")
    assert json.loads(path.read_text().splitlines()[-1])["message"] == "resumed"


STEP = done_step(1, loss=2.25, rank_seconds=[0.005])


def test_the_log_is_complete_and_has_the_address_of_the_metrics_which_are_served_in_the_block(tmp_path: Path) -> None:
    with reporting(tmp_path, MetricsSettings(exporter="prometheus")) as reporter:
        reporter.emit(training_started())
        reporter.emit(STEP)
        (started,) = select(read_all(tmp_path), TrainingStarted)
        with urllib.request.urlopen(started.metrics_url, timeout=60) as answer:  # noqa: S310 - our own
            page = answer.read().decode()
    assert any(line.endswith(" 2.25") for line in page.splitlines())
    assert read_all(tmp_path) == [started, STEP]
    host, _, port = started.metrics_url.removeprefix("http://").partition("/")[0].partition(":")
    assert host == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=10)


def test_a_port_taken_since_the_preflight_is_refused_with_port_0_as_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings = MetricsSettings(exporter="prometheus", port=server.getsockname()[1])
        with pytest.raises(PreflightError, match=str(settings.port)) as caught, reporting(tmp_path, settings):
            pass
    assert "metrics.port=0" in caught.value.remedy


def test_the_reporter_of_other_ranks_drops_events(tmp_path: Path) -> None:
    Reporter().emit(Notice(level="warning", message="unheard"))
    assert list(tmp_path.iterdir()) == []

"""`notebook` with the real Kueue, KubeRay and JupyterLab; the pods' containers are processes of this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from infra.lifecycle.sandbox.processes import free_ports
from tests.engines.jupyter import require_jupyterlab, stop
from tests.engines.kubernetes_operators import Operated
from tests.engines.report_table import ran
from tests.training.cli.command import ROOT, assert_refused
from tests.training.cluster import local_kubectl
from tests.training.cluster.commands import command, options_on, read_until
from tests.waiting import wait_until
from training.cluster.objects import RAY_JOB
from training.errors import ExitStatus

_SECONDS = 120


@dataclass(frozen=True)
class Laptop:
    """A machine with the code folder `project` and kubectl; the pods' code folder is `pod`."""

    folder: Path
    environment: dict[str, str]
    options: list[str]

    def forwards(self) -> list[int]:
        """Process IDs of the forwards that were started."""
        return [int(one.name) for one in (self.folder / "forwards").iterdir()]

    def has_no_forwards(self) -> bool:
        return not any(map(psutil.pid_exists, self.forwards()))

    def notebook(self, *arguments: str) -> list[str]:
        return ["notebook", *arguments, *self.options]


@pytest.fixture
def laptop(queued: Operated, tmp_path: Path) -> Iterator[Laptop]:
    """A machine whose kubectl runs the pods' programs here."""
    require_jupyterlab()
    for name in ("project", "pod", "tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "project" / "mine.py").write_text("VALUE = 42\n")
    environment = {
        **local_kubectl.variables(tmp_path, code=tmp_path / "pod"),
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONPATH": str(ROOT),
    }
    yield Laptop(tmp_path, environment, options_on(queued, tmp_path))
    with suppress(OSError):
        server = json.loads((tmp_path / "tmp" / "notebook-server" / "server.json").read_text())
        stop(server["pid"])


@contextmanager
def opened(laptop: Laptop, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command, and the URL that it prints."""
    with command(*laptop.notebook(*arguments), cwd=laptop.folder, environment=laptop.environment) as process:
        yield process, read_until(process, "http://127.0.0.1").strip()


def interrupt(process: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> str:
    """Press Ctrl-C, or send another signal; returns what the command printed since."""
    process.send_signal(number)
    rest, _ = process.communicate(timeout=_SECONDS)
    assert process.returncode == ExitStatus.DONE, rest
    return rest


def test_a_notebook_starts_its_session_syncs_the_code_and_reconnects(queued: Operated, laptop: Laptop) -> None:
    queued.dashboards.say("session-notes", "RUNNING")
    (port,) = free_ports(1)
    code, pod = laptop.folder / "project", laptop.folder / "pod"
    options = ["--code", str(code), "--gpus", "1", "--group", "a10g", "--port", str(port)]
    with opened(laptop, "notes", *options) as (process, url):
        ran("JupyterLab")
        assert "/lab?token=" in url
        with urllib.request.urlopen(url) as page:  # noqa: S310 - our own
            assert "JupyterLab" in page.read().decode()
        assert (pod / "mine.py").read_text() == "VALUE = 42\n"
        (pod / "a.ipynb").write_text("{}")
        (code / "mine.py").write_text("VALUE = 43\n")
        wait_until((code / "a.ipynb").exists, seconds=_SECONDS)
        wait_until(lambda: (pod / "mine.py").read_text() == "VALUE = 43\n", seconds=_SECONDS)

        (first,) = laptop.forwards()
        os.kill(first, signal.SIGKILL)
        assert "connection to session-notes lost, it goes on" in read_until(process, "lost")
        assert read_until(process, "connected") == "reconnected\n"
        with urllib.request.urlopen(url) as page:  # noqa: S310
            assert page.status == 200
        (code / "last.py").write_text("1\n")
        rest = interrupt(process)
    assert "session session-notes goes on" in rest
    assert "make stop ENV=dev JOB=session-notes TEAM=research" in rest
    assert (pod / "last.py").exists(), "the end synchronizes once more"
    assert laptop.has_no_forwards()


def test_a_second_notebook_uses_the_server_of_the_first_until_the_session_ends(
    queued: Operated, laptop: Laptop
) -> None:
    queued.dashboards.say("session-both", "RUNNING")
    (port,) = free_ports(1)
    with (
        opened(laptop, "both", "--gpus", "1", "--group", "a10g", "--port", str(port)) as (first, url),
        opened(laptop) as (second, other),
    ):
        assert f":{port}/lab" in url
        assert other != url
        assert re.sub(r":\d+/", "", other) == re.sub(r":\d+/", "", url), "the token is the server's"
        (session,) = queued.cluster.items(*RAY_JOB, namespace="research")
        assert session["metadata"]["name"] == "session-both"
        interrupt(second, signal.SIGHUP)
        queued.end(session, "SUCCEEDED")
        queued.await_state(session, lambda state: state.stage == "done", what="done")
        for forward in filter(psutil.pid_exists, laptop.forwards()):
            os.kill(forward, signal.SIGKILL)
        assert "make logs ENV=dev JOB=session-both" in read_until(first, "has ended")
        first.wait(_SECONDS)
    assert first.returncode == ExitStatus.DONE
    assert len(laptop.forwards()) == 2
    assert laptop.has_no_forwards()
    with command(*laptop.notebook("both"), environment=laptop.environment) as again:
        said, _ = again.communicate(timeout=_SECONDS)
    assert "session session-both has ended, and its name is taken" in said


def test_a_code_folder_that_cannot_be_copied_is_refused_before_anything_starts(
    queued: Operated, laptop: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", laptop.environment["PATH"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert_refused(3, f"port {port} of this machine is in use", *laptop.notebook("new", "--port", port))
    (laptop.folder / "project" / "random.py").write_text("A=1")
    shadows = "random.py at the top of the code folder"
    assert_refused(2, shadows, *laptop.notebook("new", "--code", str(laptop.folder / "project")))
    assert queued.cluster.items(*RAY_JOB, namespace="research") == []

"""`notebook` with the real Kueue, KubeRay and JupyterLab; the pods' containers are processes of this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.lifecycle.sandbox.processes import free_ports
from infra.spec.manifest import api_object
from tests.engines.jupyter import require_jupyterlab, stop
from tests.engines.kubernetes_operators import Operated
from tests.engines.report_table import ran
from tests.training.cli.command import ROOT
from tests.training.cluster.commands import command, options_on, read_until
from tests.training.cluster.team_cluster import wait_until
from training.cli import main
from training.cluster.objects import RAY_JOB
from training.errors import ExitStatus

_SECONDS = 120


@dataclass(frozen=True)
class Laptop:
    """A machine with a code folder and kubectl.

    Attributes:
        folder: its working folder.
        environment: of its commands.
        options: that reach the cluster.
    """

    folder: Path
    environment: dict[str, str]
    options: list[str]

    @property
    def code(self) -> Path:
        """The user's code folder."""
        return self.folder / "project"

    @property
    def pod_code(self) -> Path:
        """The session's copy."""
        return self.folder / "pod"

    def forwards(self) -> list[int]:
        """Process IDs of the forwards that were started."""
        return [int(one.name) for one in (self.folder / "forwards").iterdir()]

    def notebook(self, *arguments: str) -> list[str]:
        """The words of a command line."""
        return ["notebook", *arguments, *self.options]


@pytest.fixture
def laptop(queued: Operated, tmp_path: Path) -> Iterator[Laptop]:
    """A machine whose kubectl runs the pods' programs here."""
    require_jupyterlab()
    for name in ("bin", "project", "pod", "forwards", "tmp"):
        (tmp_path / name).mkdir()
    program = Path(__file__).with_name("local_kubectl.py")
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
    kubectl.chmod(0o755)
    (tmp_path / "project" / "mine.py").write_text("VALUE = 42\n")
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path / "tmp"),
        "PATH": f"{kubectl.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "KUBECTL_PYTHON": sys.executable,
        "KUBECTL_CODE": str(tmp_path / "pod"),
        "KUBECTL_FORWARDS": str(tmp_path / "forwards"),
        "KUBECTL_CUT": str(tmp_path / "cut"),
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


def test_a_notebook_starts_its_session_syncs_the_code_and_survives_a_broken_connection(
    queued: Operated, laptop: Laptop
) -> None:
    queued.dashboards.say("session-notes", "RUNNING")
    (port,) = free_ports(1)
    code = ["--code", str(laptop.code), "--gpus", "1", "--group", "a10g", "--port", str(port)]
    with opened(laptop, "notes", *code) as (process, url):
        ran("JupyterLab")
        assert "/lab?token=" in url
        with urllib.request.urlopen(url) as page:  # noqa: S310 - our own
            assert "JupyterLab" in page.read().decode()
        assert (laptop.pod_code / "mine.py").read_text() == "VALUE = 42\n"
        (laptop.pod_code / "a.ipynb").write_text("{}")
        (laptop.code / "mine.py").write_text("VALUE = 43\n")
        wait_until((laptop.code / "a.ipynb").exists, seconds=_SECONDS)
        wait_until(lambda: (laptop.pod_code / "mine.py").read_text() == "VALUE = 43\n", seconds=_SECONDS)

        (first,) = laptop.forwards()
        os.kill(first, signal.SIGKILL)
        assert "connection to session-notes lost, it goes on" in read_until(process, "lost")
        assert read_until(process, "connected") == "reconnected\n"
        with urllib.request.urlopen(url) as page:  # noqa: S310
            assert page.status == 200
        (laptop.code / "last.py").write_text("1\n")
        rest = interrupt(process)
    assert "session session-notes goes on" in rest
    assert "make stop ENV=dev JOB=session-notes TEAM=research" in rest
    assert (laptop.pod_code / "last.py").exists(), "the end synchronizes once more"
    for forward in laptop.forwards():
        with pytest.raises(ProcessLookupError):
            os.kill(forward, 0)


def test_a_second_notebook_uses_the_session_and_server_of_the_first_at_another_port(
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
        with command(*laptop.notebook("both", "--port", str(port)), environment=laptop.environment) as third:
            said, _ = third.communicate(timeout=_SECONDS)
        assert f"port {port} of this machine is in use" in said
        assert third.returncode == ExitStatus.REFUSED
        interrupt(second, signal.SIGHUP)
        interrupt(first, signal.SIGTERM)
    assert len(laptop.forwards()) == 2
    for forward in laptop.forwards():
        with pytest.raises(ProcessLookupError):
            os.kill(forward, 0)
    names = [job["metadata"]["name"] for job in queued.cluster.items(*RAY_JOB, namespace="research")]
    assert names == ["session-both"]


def test_the_end_of_the_session_ends_the_notebook(queued: Operated, laptop: Laptop) -> None:
    queued.dashboards.say("session-brief", "RUNNING")
    (port,) = free_ports(1)
    with opened(laptop, "brief", "--gpus", "1", "--group", "a10g", "--port", str(port)) as (process, _):
        session = queued.cluster.read(api_object(*RAY_JOB, "session-brief", namespace="research"))
        assert session is not None
        queued.end(session, "SUCCEEDED")
        queued.await_state(session, lambda state: state.stage == "done", what="done")
        os.kill(laptop.forwards()[0], signal.SIGKILL)
        assert "make logs ENV=dev JOB=session-brief" in read_until(process, "has ended")
        process.wait(_SECONDS)
    assert process.returncode == ExitStatus.DONE
    with command(*laptop.notebook("brief"), environment=laptop.environment) as again:
        said, _ = again.communicate(timeout=_SECONDS)
    assert "session session-brief has ended, and its name is taken" in said


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no files"),
        ({".env": "A=1"}, "has no files: everything in it is left out (.env (looks like a secret))"),
        ({"random.py": ""}, "random.py at the top of the code folder"),
        (None, "no such folder"),
    ],
)
def test_a_code_folder_that_cannot_be_copied_is_refused_before_anything_starts(
    files: dict[str, str] | None,
    message: str,
    queued: Operated,
    laptop: Laptop,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = laptop.folder / "wrong"
    for name, text in (files or {}).items():
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    if files == {}:
        folder.mkdir()
    monkeypatch.setenv("PATH", laptop.environment["PATH"])
    assert main(laptop.notebook("new", "--code", str(folder))) == ExitStatus.WRONG_INPUT
    assert message in capsys.readouterr().err
    assert queued.cluster.items(*RAY_JOB, namespace="research") == []

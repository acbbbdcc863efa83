"""A real JupyterLab, started and asked as in the head of a session."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.spec.errors import PlatformError
from tests.engines.jupyter import executing, jupyterlab, post
from tests.waiting import wait_until
from training.interactive.idle import Activity
from training.interactive.notebook import Server, activity, ensure, running

_SECONDS = 120


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder of a server that runs on the folder `code` beside it."""
    root = tmp_path_factory.mktemp("notebook")
    (root / "code").mkdir()
    (root / "code" / "mine.py").write_text("VALUE = 42\n")
    with jupyterlab(root / "code", root / "state"):
        yield root / "state"


@pytest.fixture
def server(state: Path) -> Server:
    found = running(state)
    assert found is not None
    return found


def test_only_who_has_the_token_gets_in_no_other_machine_and_nobody_reads_it(state: Path, server: Server) -> None:
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/api/contents")
    assert [one["name"] for one in server.get("contents")["content"]] == ["mine.py"]
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    local = [words[1] for words in listening if words[3] == "0A"]
    assert [one for one in local if one.endswith(f":{server.port:04X}")] == [f"0100007F:{server.port:04X}"]
    assert server.token not in Path(f"/proc/{server.pid}/cmdline").read_text() + (state / "jupyter.log").read_text()
    modes = [stat.S_IMODE(one.stat().st_mode) for one in (state, state / "server.json")]
    assert modes == [0o700, 0o600]


def test_a_kernel_imports_the_code_and_is_use_while_it_computes_and_when_it_did(state: Path, server: Server) -> None:
    assert activity(state) == Activity()
    (Path(server.folder) / "sub").mkdir(exist_ok=True)
    (Path(server.folder) / "sub" / "a.ipynb").write_text(
        json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    made = post(
        server, "sessions", {"path": "sub/a.ipynb", "type": "notebook", "name": "", "kernel": {"name": "python3"}}
    )
    done = Path(server.folder) / "done"
    code = (
        "import mine, pathlib, time\n"
        f"file = pathlib.Path({str(done)!r})\n"
        "file.with_suffix('.seen').write_text(str(mine.VALUE))\n"
        "while not file.exists(): time.sleep(0.05)\n"
    )
    with executing(server, made["kernel"]["id"], code):
        wait_until(lambda: activity(state).running == "notebook sub/a.ipynb", seconds=_SECONDS)
        wait_until(done.with_suffix(".seen").exists, seconds=_SECONDS)
        assert done.with_suffix(".seen").read_text() == "42"
        done.touch()
        wait_until(lambda: not activity(state).running, seconds=_SECONDS)
    age = activity(state).age
    assert age is not None
    assert age < _SECONDS
    # An hour later nothing has changed: open connections and polls are no use.
    later = activity(state, now=time.time() + 3600).age
    assert later is not None
    assert 3600 <= later < 3600 + _SECONDS
    # A notebook that is edited but not run counts too.
    then = time.time() + 3590
    os.utime(Path(server.folder) / "sub" / "a.ipynb", (then, then))
    assert activity(state, now=time.time() + 3600).age == pytest.approx(10, abs=5)


def test_a_server_that_has_ended_is_none(tmp_path: Path) -> None:
    assert running(tmp_path) is None
    assert activity(tmp_path) == Activity()
    gone = {"port": 1, "token": "x", "pid": 1, "folder": str(tmp_path)}
    (tmp_path / "server.json").write_text(json.dumps(gone))
    assert running(tmp_path) is None
    assert activity(tmp_path) == Activity()


def test_a_server_that_does_not_start_is_refused_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jupyterlab.py").write_text("raise SystemExit('no space left on device')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(PlatformError, match="no space left on device"):
        ensure(tmp_path / "code", state=tmp_path / "state")
    assert running(tmp_path / "state") is None


def test_the_program_prints_port_and_token_of_the_server_that_runs(state: Path, server: Server) -> None:
    assert ensure(Path(server.folder), state=state) == server
    (state / "notebook-server").symlink_to(state)
    program = [sys.executable, "-m", "training.interactive.notebook", server.folder]
    environment = {**os.environ, "TMPDIR": str(state)}
    answer = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout) == {"port": server.port, "token": server.token}

"""Runs the commands of the documents that need nothing, as they stand and in order, in a checkout of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.distribution import RAY
from tests.docs.commands.found import ROOT, documents
from tests.docs.commands.proof import SERVERS, STATUS, Step, steps
from tests.engines.checkouts import commit_all, copy_working_tree

STEPS = steps()
LIMIT = 300
"""Seconds for a command; a run takes half a minute on two idle cores."""

pytestmark = pytest.mark.timeout(3600)


class Terminal:
    """A checkout, and the commands that have run in it.

    Documents repeat each other. What one of them has run is not run for another.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ran = set[str]()
        copy_working_tree(root)
        commit_all(root)
        self._jupyter = root.parent / "jupyter"
        self._jupyter.mkdir()
        # A test may be root, to whom Jupyter does not serve otherwise.
        (self._jupyter / "jupyter_server_config.json").write_text('{"ServerApp": {"allow_root": true}}')

    def run(self, step: Step) -> None:
        """Run a command, unless it has run.

        Raises:
            AssertionError: it did not end as expected.
        """
        text = step.command.text
        if text in self._ran:
            return
        status, printed = self._serve(text, SERVERS[step.subject]) if step.subject in SERVERS else self._end(text)
        assert status == STATUS.get(text, 0), f"{step.command.where}: {text}\n{printed}"
        self._ran.add(text)

    def _start(self, text: str, output: int) -> subprocess.Popen[bytes]:
        path = f"{self._root / '.venv/bin'}:{os.environ['PATH']}"
        return subprocess.Popen(
            ["bash", "-c", text],
            cwd=self._root,
            env={**os.environ, "PATH": path, "JUPYTER_CONFIG_DIR": str(self._jupyter)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _end(self, text: str) -> tuple[int, str]:
        with tempfile.TemporaryFile() as output:
            started = self._start(text, output.fileno())
            try:
                status = started.wait(LIMIT)
            finally:
                _end_all(started)
            output.seek(0)
            # As a shell says that a signal ended a program.
            return (status if status >= 0 else 128 - status), output.read().decode(errors="replace")

    def _serve(self, text: str, says: str) -> tuple[int, str]:
        """Wait until a server says that it serves, and interrupt it; the status is 0 if it said so."""
        started, printed = self._start(text, subprocess.PIPE), ""
        assert started.stdout is not None
        try:
            for line in started.stdout:
                printed += line.decode(errors="replace")
                if says in printed:
                    os.killpg(started.pid, signal.SIGINT)
                    started.communicate(timeout=LIMIT)
                    return 0, printed
        finally:
            _end_all(started)
        return started.wait() or 1, printed


def _end_all(started: subprocess.Popen[bytes]) -> None:
    """End what a command has left running in its session."""
    try:
        os.killpg(started.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    started.wait()


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """A checkout for all documents: a project beside it is `../my-project`."""
    return Terminal(tmp_path_factory.mktemp("documents") / "ray-train-platform")


def of(document: Path) -> list[Step]:
    """The commands of a document."""
    return [step for step in STEPS if ROOT / step.command.document == document]


@pytest.mark.parametrize(
    "document", [one for one in documents() if any(step.is_quick for step in of(one))], ids=lambda path: path.name
)
def test_what_takes_seconds_runs(document: Path, terminal: Terminal) -> None:
    for step in of(document):
        if step.is_quick:
            terminal.run(step)


@pytest.mark.long(apart=True)  # the documents share a checkout, and need nothing of each other
@pytest.mark.xdist_group(RAY)
@pytest.mark.parametrize("document", [one for one in documents() if of(one)], ids=lambda path: path.name)
def test_everything_runs(document: Path, terminal: Terminal) -> None:
    for step in of(document):
        terminal.run(step)

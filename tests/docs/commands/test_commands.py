"""The commands of the documents: all of them exist with their options and settings; those of a first day run as they stand."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.docs.commands.found import MARK, ROOT, commands, documents, mentioned
from tests.docs.commands.needs import REASONS
from tests.docs.commands.statics import problems
from tests.engines.checkouts import commit_all, copy_working_tree

README = (
    'make ray-cluster HOSTS="10.0.0.1 10.0.0.2" SSH_USER=me RUNS=/nfs/runs',
    "make deployer-policy ENV=dev",
)
"""Commands of the README that need no account; the others of these are in docs/DEPLOYMENT.md, too, and run in its test."""

FIRST_DAY = "make train NAME=first", "make engines"
"""Of docs/TUTORIAL.md everything runs from the first of these commands up to the second."""

STATUS = {"timeout -s KILL 25 make train NAME=killed EPOCHS=300": 137}
"""Exit status of a command that does not end with 0."""

SERVES = {"make ui": "http://127.0.0.1:"}
"""What a command prints when it serves; it then gets Ctrl-C."""

LIMIT = 300
"""Seconds for a command; a run takes half a minute on two idle cores."""


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_the_commands_of_a_document_exist_with_their_options_and_settings(document: Path) -> None:
    typed = sorted({*commands(document), *mentioned(document)})
    assert {text: found for text in typed if (found := [*problems(text)])} == {}


def test_a_mark_names_known_reasons() -> None:
    for document in documents():
        for mark in MARK.findall(document.read_text(encoding="utf-8")):
            assert {*mark.split(", ")} <= {*REASONS}, document.name


def run(root: Path, text: str) -> None:
    """Run a command in a checkout, and end what it leaves; a server is interrupted once it serves."""
    started = subprocess.Popen(
        ["bash", "-c", text],
        cwd=root,
        env={**os.environ, "PATH": f"{root / '.venv/bin'}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    assert started.stdout is not None
    said = ""
    try:
        if text in SERVES:
            said = next((line for line in started.stdout if SERVES[text] in line), "")
            assert said, f"{text} does not serve"
            os.killpg(started.pid, signal.SIGINT)
        said += started.communicate(timeout=LIMIT)[0]
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
    # As a shell says that a signal ended a program.
    status = started.returncode if started.returncode >= 0 else 128 - started.returncode
    assert text in SERVES or status == STATUS.get(text, 0), f"{text}\n{said}"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout; a project beside it is `../my-project`."""
    root = tmp_path / "ray-train-platform"
    copy_working_tree(root)
    commit_all(root)
    return root


@pytest.mark.extended
def test_the_commands_of_the_readme_that_need_no_account_run(checkout: Path) -> None:
    assert {*README} <= {*commands(ROOT / "README.md")}
    for text in README:
        run(checkout, text)


# Trains, is killed, resumes and searches: the only test of the tutorial as a user follows it.
@pytest.mark.extended
@pytest.mark.timeout(3600)
def test_the_tutorial_runs_from_its_beginning_until_it_needs_a_cluster(checkout: Path) -> None:
    # Over 20 CPU seconds: it is the tutorial, whose commands train, search, export and resume as a reader runs them.
    listed = commands(ROOT / "docs" / "TUTORIAL.md")
    begin, end = map(listed.index, FIRST_DAY)
    for text in listed[begin:end]:
        run(checkout, text)

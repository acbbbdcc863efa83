"""Start and stop a sandbox by its commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.kube.connection import connect_with
from infra.kube.stack_connection import connect
from infra.lifecycle.cli import main
from infra.lifecycle.sandbox import detached
from infra.lifecycle.sandbox.keeper import lock_of
from infra.lifecycle.sandbox.layout import kubeconfig_in
from infra.lifecycle.sandbox.modules import KUEUE, OPERATORS
from infra.lifecycle.sandbox.programs import find_operator
from infra.spec.errors import PlatformError
from infra.spec.outputs import read_outputs
from tests.distribution import KUBERNETES
from tests.engines.kubernetes import engine_programs
from tests.infra.aws.graphs import settings_of
from tests.infra.lifecycle.sandbox.folders import sandbox_folder
from tests.waiting import wait_until

pytestmark = pytest.mark.xdist_group(KUBERNETES)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    engine_programs()
    with sandbox_folder(tmp_path) as found:
        yield found


@pytest.mark.extended
def test_start_and_stop(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # Over 20 CPU seconds: the sandbox it starts and stops is a control plane with every operator.
    assert main(["sandbox", "--env", "dev"]) == 0
    printed = capsys.readouterr().out
    assert f"export KUBECONFIG={kubeconfig_in(folder)}" in printed
    processes = _processes_of(folder)
    operators = [module for module in OPERATORS if find_operator(module, os.environ)]
    assert len(processes) == 6 + len(operators)
    for module in OPERATORS:
        state = "is running" if module in operators else "is missing: run make engines"
        assert f"sandbox: {module.title} {module.version} {state}" in printed
    nodes = connect_with(kubeconfig_in(folder)).items("v1", "Node")
    assert len(nodes) == sum(request.max_size for request in settings_of("dev").launch_requests())
    outputs = read_outputs(json.loads((folder / "outputs.json").read_text()), file="outputs.json")
    connect(outputs, kubeconfig=kubeconfig_in(folder), environment={})
    if KUEUE in operators:
        _holds_and_releases(monkeypatch, capsys, folder)
    assert main(["sandbox", "--env", "dev"]) == 3
    assert "make sandbox-down" in capsys.readouterr().err
    assert main(["sandbox-down"]) == 0
    assert _processes_of(folder) == set()
    assert list(folder.parent.iterdir()) == []


def _holds_and_releases(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """What the sandbox prints to export is all that `hold` and `release-queues` need; there is no pulumi."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig_in(folder)))
    assert main(["hold", "--env", "dev", "--outputs", str(folder / "outputs.json")]) == 0
    assert capsys.readouterr().out.endswith("dev: no job runs\n")
    monkeypatch.setenv("RTP_STACK_OUTPUTS", str(folder / "outputs.json"))
    assert main(["release-queues", "--env", "dev"]) == 0
    assert capsys.readouterr().out == "queues released: platform, research\n"
    assert main(["release-queues", "--env", "prod"]) == 2
    assert "outputs of environment dev, not of prod" in capsys.readouterr().err


@pytest.mark.extended
def test_the_programs_of_a_killed_keeper_end_and_its_files_are_deleted(folder: Path) -> None:
    detached.start(folder)
    os.kill(int(lock_of(folder).read_text()), signal.SIGKILL)
    wait_until(lambda: not _processes_of(folder), seconds=60)
    assert not detached.is_running(folder)
    assert detached.stop(folder)
    assert list(folder.parent.iterdir()) == []


def test_without_programs(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RTP_ENGINES", str(folder))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PlatformError, match=r"(?s)did not start: etcd, .* make engines"):
        detached.start(folder)
    assert list(folder.parent.iterdir()) == []
    assert main(["sandbox-down"]) == 0
    assert "not running" in capsys.readouterr().out
    assert not folder.exists()


@pytest.mark.extended
def test_an_interrupted_start_says_that_it_stops_and_leaves_nothing(folder: Path) -> None:
    # A process in the background of a shell ignores SIGINT, and so do those that it starts.
    starts = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from infra.lifecycle.cli import main"
    command = [sys.executable, "-uc", f"{starts}; sys.exit(main(['sandbox', '--env', 'dev']))"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("sandbox: ")
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
        assert process.wait(60) == 130
    assert said.endswith("sandbox: interrupted, and stopped\n")
    assert _processes_of(folder) == set()
    assert list(folder.parent.iterdir()) == []


def _processes_of(folder: Path) -> set[int]:
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder) in (entry / "cmdline").read_text():
                found.add(int(entry.name))
        except OSError:  # the process has exited
            continue
    return found

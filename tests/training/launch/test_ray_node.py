"""The Ray node of a local run: its processes, a slow start, a failed start."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import ray
from ray import NodeID
from ray._private import node as ray_node_module
from ray._private import services
from ray._raylet import GcsClient  # type: ignore[attr-defined] # a compiled module

from tests.distribution import RAY
from tests.engines.ray_cluster import short_folder
from tests.training.launch.driver import ROOT
from tests.training.runs import small_settings
from tests.waiting import wait_until
from training.config.schema import ScaleSettings
from training.errors import PlatformError
from training.launch.ray_train import RayLauncher
from training.launch.task import Outcome, RankTask

pytestmark = pytest.mark.xdist_group(RAY)


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for Ray and the run. Afterwards, the environment is as before: the launcher sets defaults in it."""
    before = dict(os.environ)
    with short_folder() as folder:
        yield folder
    monkeypatch.undo()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def earlier() -> frozenset[int]:
    """Process ids of this process's descendants before the test, such as those of other tests' libraries."""
    return frozenset(process.pid for process in psutil.Process().children(recursive=True))


def run_one_step(
    scratch: Path, earlier: frozenset[int] = frozenset(), *, start_timeout: float = 120.0
) -> tuple[Outcome, list[str]]:
    """Run one step on one rank; returns the outcome and the names of the processes that Ray has afterwards."""
    scale = ScaleSettings(workers=1, start_timeout=start_timeout)
    launcher = RayLauncher(scale, scratch=scratch / "ray")
    settings = small_settings(scale=scale.model_dump(), loop={"max_steps": 1})
    folder = scratch / "run"
    folder.mkdir()
    try:
        task = RankTask(settings=settings, run_directory=folder, attempt=0)
        outcome = launcher.launch(task, on_phase=lambda _: None)
        return outcome, children(earlier)
    finally:
        launcher.close()


def children(earlier: frozenset[int]) -> list[str]:
    """Names of this process's running descendants, without the `earlier` ones."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.pid not in earlier and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.name())
        except psutil.NoSuchProcess:
            continue
    return sorted(found)


def replace_program(patch: pytest.MonkeyPatch, folder: Path, name: str, script: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    patch.setattr(services, f"{name.upper()}_EXECUTABLE", str(program))


def shorten_rays_limit(patch: pytest.MonkeyPatch) -> None:
    """Have Ray's constructor give up after half a second: its constant is 30 s, and its query waits for another 30 s."""
    fast = SimpleNamespace(**{**vars(time), "monotonic": lambda: 60 * time.monotonic()})
    patch.setattr(ray_node_module, "time", fast)
    query = services.get_node

    def get_node(address: str, node_id: str) -> object:
        if NodeID.from_hex(node_id) not in GcsClient(address=address).get_all_node_info(timeout=60):
            raise RuntimeError("not registered")
        return query(address, node_id)

    patch.setattr(services, "get_node", get_node)


@pytest.mark.extended
def test_a_slow_start_is_awaited_and_leaves_other_threads_running(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's own wait for its metadata service would hold the interpreter's lock: it would never start here."""
    shorten_rays_limit(monkeypatch)
    replace_program(monkeypatch, scratch, "raylet", f'sleep 2; exec {services.RAYLET_EXECUTABLE} "$@"')
    begun, go = scratch / "begun", scratch / "go"
    script = f'touch {begun}; until [ -e {go} ]; do sleep 0.05; done; exec {services.GCS_SERVER_EXECUTABLE} "$@"'
    replace_program(monkeypatch, scratch, "gcs_server", script)

    def let_it_start() -> None:
        wait_until(begun.exists)
        go.touch()

    thread = threading.Thread(target=let_it_start)
    thread.start()
    outcome, _ = run_one_step(scratch)
    thread.join()
    assert outcome.step == 1


@pytest.mark.parametrize(
    "failure",
    [
        ("gcs_server", "exit 3", 120.0, "metadata service exited with status 3"),
        ("raylet", "exit 3", 120.0, "raylet exited with status 3"),
        ("raylet", "exec sleep 600", 2.0, r"did not start within 2 s.*scale\.start_timeout"),
    ],
)
def test_a_failed_start_is_an_error_with_its_reason_and_leaves_no_process(
    scratch: Path, earlier: frozenset[int], monkeypatch: pytest.MonkeyPatch, failure: tuple[str, str, float, str]
) -> None:
    program, script, start_timeout, message = failure
    replace_program(monkeypatch, scratch, program, script)
    started = time.monotonic()
    with pytest.raises(PlatformError, match=message):
        run_one_step(scratch, start_timeout=start_timeout)
    assert time.monotonic() - started < 25, "Ray's own limit is 30 s"
    assert children(earlier) == []


def test_a_local_run_starts_only_the_processes_that_it_needs(scratch: Path, earlier: frozenset[int]) -> None:
    outcome, waiting = run_one_step(scratch, earlier)
    assert outcome.step == 1
    # The agent, which the kernel cuts the name of, its fork server with the server's resource tracker, and the rank for the next attempt.
    agents = ("ray::RayTrainWo", "python", "rtp-rank")
    assert [name for name in waiting if not name.startswith(agents)] == ["cat", "cat", "gcs_server", "raylet"]
    assert children(earlier) == []
    assert not ray.is_initialized()
    assert os.environ["RAY_AUTH_MODE"] == "disabled"


WATCHED_START = """
import os, sys, threading
from pathlib import Path

def watch(event, arguments):
    has_threads = threading.active_count() > 1 or "training.launch.ray_node" in sys.modules
    if event == "os.putenv" and has_threads and arguments[0].decode() not in os.environ:
        print("added", arguments[0].decode(), flush=True)

sys.addaudithook(watch)
from training.launch.ray_cluster import RayCluster

cluster = RayCluster(address=None, cpus=1, gpus=0, start_timeout=120, scratch=Path(sys.argv[1]))
cluster.start(imports=sys.argv[2])
cluster.close()
print("started")
"""


def test_a_start_adds_no_environment_variable_while_other_threads_run(scratch: Path) -> None:
    """A variable that is added while another thread reads the environment can crash the process; one that is changed cannot."""
    command = [sys.executable, "-c", WATCHED_START, str(scratch), "training.launch.ray_trainer"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == ["started"]

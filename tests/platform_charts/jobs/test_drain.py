"""The preStop scripts, run for real against a driver that holds the run's lock."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.spec.cluster_names import POD_LOCK_VARIABLE
from platform_charts.jobs.drain import drain_head, drain_worker
from training.launch.pod_lock import holding_the_pod
from training.rundir import RunDirectory

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 60.0
"""Seconds that what takes a few tenths may take on a busy machine."""
DRIVER = """
import sys, time
from pathlib import Path
from training.rundir import RunDirectory
run = RunDirectory(Path(sys.argv[1]))
with run.driving():
    print("driving", flush=True)
    while not run.stop_is_requested():
        time.sleep(0.02)
    (run.path / "saved").touch()
"""


@contextmanager
def driving(folder: Path) -> Iterator[None]:
    """A driver in a process of its own, which saves and ends when it is asked to stop."""
    process = subprocess.Popen([sys.executable, "-c", DRIVER, str(folder)], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"driving\n"
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def start(script: str, *, programs: Path | None = None) -> subprocess.Popen[bytes]:
    """Run a script as the kubelet does.

    Args:
        script: of a pod.
        programs: folder with a program `ray`; without one, the notice to Ray fails.
    """
    path = "/usr/bin:/bin" if programs is None else f"{programs}:/usr/bin:/bin"
    return subprocess.Popen(["/bin/bash", "-c", script], env={"PATH": path}, stderr=subprocess.DEVNULL)


RANK = """
import os, sys
from training.launch.pod_lock import holding_the_pod
with holding_the_pod():
    print("here", flush=True)
    sys.stdin.readline()
print("left", flush=True)
sys.stdin.readline()
"""


@contextmanager
def in_pod(lock: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A rank in a process of its own, which leaves the pod when it gets a line."""
    environment = {**os.environ, POD_LOCK_VARIABLE: str(lock)}
    command = [sys.executable, "-c", RANK]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def worker_script(folder: Path | None, lock: Path, *, grace_seconds: int = 60, leaves_at_once: bool = False) -> str:
    """The script of a worker whose ranks lock this file."""
    where = None if folder is None else str(folder)
    return drain_worker(where, pod_lock=str(lock), grace_seconds=grace_seconds, leaves_at_once=leaves_at_once)


def head_script(folder: Path) -> str:
    """The head's script for a run."""
    script = drain_head(str(folder), grace_seconds=60)
    assert script is not None
    return script


def test_the_head_ends_when_the_run_has_saved(tmp_path: Path) -> None:
    with driving(tmp_path):
        head = start(head_script(tmp_path))
        assert head.wait(timeout=PATIENCE) == 0
        assert (tmp_path / "saved").exists()


def test_a_worker_ends_once_its_ranks_have_left_or_died_while_the_run_goes_on(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with driving(tmp_path), in_pod(lock) as dying, in_pod(lock) as leaving:
        worker = start(worker_script(tmp_path, lock))
        time.sleep(0.3)
        assert worker.poll() is None
        dying.kill()
        time.sleep(0.3)
        assert worker.poll() is None
        assert leaving.stdin is not None
        leaving.stdin.write(b"\n")
        leaving.stdin.flush()
        assert worker.wait(timeout=PATIENCE) == 0
        assert start(worker_script(tmp_path, tmp_path / "empty")).wait(timeout=PATIENCE) == 0
        assert RunDirectory(tmp_path).is_running()


@pytest.mark.extended
def test_a_worker_stays_until_the_deadline_that_ray_was_told_although_telling_takes_long(tmp_path: Path) -> None:
    lock, ray, deadline = tmp_path / "lock", tmp_path / "ray", tmp_path / "deadline"
    ray.write_text(f"#!/bin/bash\nsleep 3\necho $((${{@: -1}} + $(date +%s))) > {deadline}\n")
    ray.chmod(0o755)
    with driving(tmp_path), in_pod(lock) as rank:
        began = time.time()
        assert start(worker_script(tmp_path, lock, grace_seconds=40), programs=tmp_path).wait(timeout=PATIENCE) == 0
        assert rank.poll() is None
    assert began + 3 <= int(deadline.read_text()) <= time.time() < began + 25


def test_ranks_of_an_elastic_job_are_told_no_deadline_because_they_leave_at_once(tmp_path: Path) -> None:
    assert "--deadline" in worker_script(tmp_path, tmp_path)
    assert "--deadline" not in worker_script(tmp_path, tmp_path, leaves_at_once=True)


def test_outside_of_a_pod_there_is_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(POD_LOCK_VARIABLE, raising=False)
    with holding_the_pod():
        pass


def test_a_finished_run_is_not_asked_to_stop_and_its_worker_tells_nobody(tmp_path: Path) -> None:
    """Its cluster is deleted, and the head may be gone."""
    with RunDirectory(tmp_path).driving():
        pass
    assert start(head_script(tmp_path)).wait(timeout=PATIENCE) == 0
    assert not RunDirectory(tmp_path).stop_is_requested()
    told = tmp_path / "told"
    script = worker_script(tmp_path, tmp_path / "lock").replace("ray drain-node", f"touch {told} #")
    assert start(script).wait(timeout=PATIENCE) == 0
    assert not told.exists()


def test_a_job_whose_run_never_started_ends_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for _ in range(2):
        assert start(head_script(folder)).wait(timeout=PATIENCE) == 0
        assert start(worker_script(folder, tmp_path / "lock")).wait(timeout=PATIENCE) == 0
        folder.mkdir(exist_ok=True)


def test_ray_knows_the_flags_of_drain_node() -> None:
    ray = Path(sys.executable).with_name("ray")
    text = subprocess.run([ray, "drain-node", "--help"], check=True, capture_output=True, text=True).stdout
    used = {word for word in worker_script(None, Path("lock")).split() if word.startswith(("--", "DRAIN_"))}
    assert all(word in "".join(text.split()) for word in used)

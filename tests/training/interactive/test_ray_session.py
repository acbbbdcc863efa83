"""A session on a real Ray cluster of one node, with dashboard, job server and token, as on a head."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from ray._private.authentication.authentication_constants import TOKEN_INVALID_ERROR_MESSAGE
from ray.job_submission import JobStatus, JobSubmissionClient
from requests import RequestException

from infra.lifecycle.sandbox.processes import free_ports
from tests.engines.ray_cluster import short_folder
from tests.engines.report_table import ran
from tests.processes import run_command
from tests.training.cluster import local_kubectl
from tests.waiting import wait_until
from training.cluster.sessions import job_submission

pytestmark = pytest.mark.extended

_SECONDS = 120
_STARTS = 3
_IDLE_SECONDS = 6
_GPUS = 2

_TOKEN = "a" * 64
_WITH_TOKEN = {
    **os.environ,
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": _TOKEN,
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "120",  # 30 by default, which a busy machine exceeds
}
"""As KubeRay sets it in every container."""

_ACTOR_WITHOUT_RESOURCES = """
import pathlib, ray, sys, time
ray.init(address="auto")
@ray.remote(num_cpus=0)
class Waiting:
    def until(self, file):
        while not pathlib.Path(file).exists(): time.sleep(0.1)
ray.get(Waiting.remote().until.remote(sys.argv[1]))
"""


class Head(NamedTuple):
    """A new cluster: its job server with its port, and the address for drivers."""

    jobs: JobSubmissionClient
    address: str
    dashboard: int


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    """A head without workers, which offers two CPUs.

    Its raylet aborts if its agent does not start within 15 s, as on a busy machine, and is then started again.
    """
    for attempt in range(_STARTS):
        with short_folder() as folder, _started(folder) as found:
            if found is None and attempt < _STARTS - 1:
                continue
            assert found is not None, "the head did not start"
            ran("Ray cluster")
            yield found
            return


@contextmanager
def _started(folder: Path) -> Iterator[Head | None]:
    """A head that runs jobs; None if it ends before it does."""
    gcs, dashboard, agent = free_ports(3)
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--num-cpus=2"]
    ports = [f"--port={gcs}", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}"]
    node = [*command, *ports, f"--temp-dir={folder}", "--node-ip-address=127.0.0.1"]
    process = subprocess.Popen(node, env=_WITH_TOKEN, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{dashboard}"
    try:
        wait_until(lambda: process.poll() is not None or _runs_jobs(address), seconds=_SECONDS)
        if process.poll() is None:
            jobs = _client(address)
            wait_until(lambda: all(job.status.is_terminal() for job in jobs.list_jobs()), seconds=_SECONDS)
            yield Head(jobs, f"127.0.0.1:{gcs}", dashboard)
        else:
            yield None
    finally:
        process.terminate()
        process.wait(_SECONDS)


def _client(address: str) -> JobSubmissionClient:
    return JobSubmissionClient(address, headers={"Authorization": f"Bearer {_TOKEN}"})


def _runs_jobs(address: str) -> bool:
    try:
        _client(address).submit_job(entrypoint="true")
    except (ConnectionError, RuntimeError, RequestException):
        return False
    return True


def _session(jobs: JobSubmissionClient, **variables: str) -> str:
    options = f"--idle-minutes {_IDLE_SECONDS / 60} --gpus {_GPUS} --usd-per-hour 3600"
    return str(
        jobs.submit_job(
            entrypoint=f"{shlex.quote(sys.executable)} -m training session {options}",
            runtime_env={
                "env_vars": {"PYTHONPATH": str(Path(__file__).parents[3]), "PYTHONUNBUFFERED": "1", **variables}
            },
        )
    )


def _says(jobs: JobSubmissionClient, session: str, text: str) -> None:
    try:
        wait_until(lambda: text in jobs.get_job_logs(session), seconds=_SECONDS)
    except AssertionError as error:
        error.add_note(jobs.get_job_logs(session))
        raise


def _ends(jobs: JobSubmissionClient, session: str) -> str:
    """The log of a session that has ended by itself."""
    wait_until(lambda: jobs.get_job_status(session).is_terminal(), seconds=_SECONDS)
    log = str(jobs.get_job_logs(session))
    assert jobs.get_job_status(session) is JobStatus.SUCCEEDED, log
    return log


def test_a_session_that_nobody_uses_ends_by_itself_with_its_cost(head: Head) -> None:
    log = _ends(head.jobs, _session(head.jobs))
    ended = re.search(r"nobody used it for 6\.0 s; (\d+\.\d\d) GPU-hours, about \$(\d+\.\d\d)", log)
    assert ended, log
    seconds = float(ended[2])  # at $3600 per hour
    assert seconds >= _IDLE_SECONDS
    assert float(ended[1]) == pytest.approx(_GPUS * seconds / 3600, abs=0.006)
    assert "in use" not in log


def test_an_actor_without_resources_keeps_a_session_until_it_ends(head: Head, tmp_path: Path) -> None:
    """Its driver is none that the job server started, as one of a shell or a notebook."""
    done, script = tmp_path / "done", tmp_path / "work.py"
    script.write_text(_ACTOR_WITHOUT_RESOURCES)
    session = _session(head.jobs)
    environment = {**_WITH_TOKEN, "RAY_ADDRESS": head.address}
    with subprocess.Popen([sys.executable, str(script), str(done)], env=environment):
        try:
            _says(head.jobs, session, "in use: task")
            seen = time.monotonic()
            wait_until(lambda: time.monotonic() - seen > 1.5 * _IDLE_SECONDS)
            assert head.jobs.get_job_status(session) is JobStatus.RUNNING
        finally:
            done.touch()
    assert "nothing runs\nsession ended: nobody used it" in _ends(head.jobs, session)


@contextmanager
def _forwarded(port: int, folder: Path) -> Iterator[int]:
    """A local port that is forwarded to another."""
    (local,) = free_ports(1)
    environment = {**os.environ, "KUBECTL_FORWARDS": str(folder), "KUBECTL_CUT": str(folder / "cut")}
    program = [sys.executable, str(Path(local_kubectl.__file__)), "port-forward", "pod/head", f"{local}:{port}"]
    with subprocess.Popen(program, env=environment) as process:
        try:
            wait_until(lambda: bool(list(folder.iterdir())), seconds=_SECONDS)
            yield local
        finally:
            process.kill()


def test_the_commands_that_forward_prints_submit_a_job_and_need_the_token(head: Head, tmp_path: Path) -> None:
    for name in ("forwards", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "work" / "script.py").write_text("import ray\nray.init()\nprint('answer', 6 * 7)\n")
    token = tmp_path / "it's a token"
    token.touch(mode=0o600)
    token.write_text(_TOKEN)
    outside = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    outside |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}

    def typed(commands: str) -> subprocess.CompletedProcess[str]:
        return run_command(["bash", "-euc", commands], cwd=tmp_path / "work", env=outside, seconds=_SECONDS)

    with _forwarded(head.dashboard, tmp_path / "forwards") as port:
        # In a head `python` is the image's; here it may be one without Ray.
        printed = job_submission(token, port=port).replace("-- python ", f"-- {sys.executable} ")
        done = typed(printed)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "answer 42" in done.stdout
        token.write_text("b" * 64)
        refused = typed(printed)
    assert refused.returncode != 0
    assert TOKEN_INVALID_ERROR_MESSAGE in refused.stderr

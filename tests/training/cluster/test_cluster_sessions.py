"""Sessions from the command line through the real Kueue, KubeRay and scheduler; Ray's drivers and kubelets are fakes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from infra.spec.manifest import Manifest, api_object
from tests.engines.kubernetes_jobs import job
from tests.engines.kubernetes_operators import Operated
from tests.training.cli.command import ask_here, assert_refused
from tests.training.cluster.commands import command, options_on, read_until
from tests.training.cluster.team_cluster import wait_until
from training.cluster.objects import RAY_JOB
from training.errors import ExitStatus

_SECONDS = 60

_KUBECTL = """#!/bin/sh
echo "kubectl $*" >> "$CALLS"
case "$*" in *printenv*) echo a-token;; esac
"""


@pytest.fixture
def on_cluster(queued: Operated, tmp_path: Path) -> list[str]:
    """Options of a command for the team research."""
    return options_on(queued, tmp_path)


@pytest.fixture
def kubectl_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File with the calls of kubectl, which is a fake: no kubelet runs the pods' containers here."""
    program, calls = tmp_path / "bin" / "kubectl", tmp_path / "calls"
    program.parent.mkdir()
    program.write_text(_KUBECTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(calls))
    monkeypatch.chdir(tmp_path)
    return calls


def _session(queued: Operated, name: str) -> Manifest:
    found = queued.cluster.read(api_object(*RAY_JOB, name, namespace="research"))
    assert found is not None
    return found


def test_a_session_is_used_and_releases_its_quota(queued: Operated, on_cluster: list[str], kubectl_calls: Path) -> None:
    assert_refused(3, "team research has no running session", "shell", *on_cluster)
    assert_refused(3, "session-notes: no such session of team research", "forward", "notes", *on_cluster)
    assert not kubectl_calls.exists()
    queued.dashboards.say("session-notes", "RUNNING")
    shown = ask_here("cluster", "notes", "--gpus", "8", "--group", "a10g", "--idle", "45m", *on_cluster).out
    assert "session session-notes: 2 worker pods with 8 GPUs, about $" in shown
    assert "make shell ENV=dev JOB=session-notes TEAM=research" in shown
    assert "after 45 minutes without use, at the latest after 8 h" in shown

    for words in (["shell"], ["shell", "notes", "--head"], ["forward", "session-notes", "--port", "9000"]):
        answer = ask_here(*words, *on_cluster)
        assert answer.status == ExitStatus.DONE
    worker, head, token, port = (line.split() for line in kubectl_calls.read_text().splitlines())
    in_code = ["--", "/bin/bash", "-c", "cd", "/mnt/code", "2>/dev/null;", "exec", "/bin/bash"]
    assert worker[-9:] == ["--container=ray-worker", *in_code]
    assert "-workers-worker-" in worker[-10]
    assert head[-9:] == ["--container=ray-head", *in_code]
    assert token[-2:] == ["printenv", "RAY_AUTH_TOKEN"]
    assert port[-1] == "9000:8265"
    assert "--namespace=research" in port
    assert "RAY_AUTH_TOKEN_PATH=" in answer.out

    later = queued.submit(job("later", team="research", group="a10g", workers=8))
    queued.await_state(later, lambda state: state.stage == "queued" and "quota" in state.reason, what="queued")
    session = _session(queued, "session-notes")
    queued.end(session, "SUCCEEDED")
    queued.await_state(session, lambda state: state.stage == "done", what="done")
    queued.await_state(later, lambda state: state.stage == "starting", what="admitted")
    assert_refused(3, "start another: make cluster ENV=dev", "resume", "session-notes", *on_cluster)


def test_an_interrupt_of_a_queued_session_says_that_it_holds_no_gpus(queued: Operated, on_cluster: list[str]) -> None:
    queued.submit(job("all", team="research", group="a10g", workers=8))
    with command("cluster", "wanted", "--group", "a10g", *on_cluster) as process:
        read_until(process, "position 1")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=_SECONDS)
    assert process.returncode == ExitStatus.INTERRUPTED
    assert "job session-wanted stays in the queue and holds no GPUs" in rest
    assert "make stop ENV=dev JOB=session-wanted TEAM=research" in rest
    assert queued.pods(_session(queued, "session-wanted")) == []


def test_a_stopped_session_releases_its_pods(queued: Operated, on_cluster: list[str]) -> None:
    assert ask_here("cluster", "brief", "--gpus", "1", "--group", "a10g", "--detach", *on_cluster).status == 0
    session = _session(queued, "session-brief")
    wait_until(lambda: len(queued.pods(session)) == 3, seconds=_SECONDS)
    stopped = ask_here("stop", "session-brief", *on_cluster)
    assert (stopped.status, "session session-brief ends: 0.0" in stopped.out) == (0, True)
    assert queued.pods(session) == []

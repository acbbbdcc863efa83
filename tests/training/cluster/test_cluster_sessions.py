"""Sessions and a user's own command through the real Kueue, KubeRay and scheduler; Ray's drivers and kubelets are fakes."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import pytest

from infra.spec.manifest import Manifest, api_object
from tests.engines.kubernetes_jobs import job
from tests.engines.kubernetes_operators import Operated
from tests.kuberay.expand import expand
from tests.training.cli.command import ask_here, assert_refused
from tests.training.cluster.code_of_jobs import deliver, mount_parts
from tests.training.cluster.commands import command, options_on, read_until
from tests.waiting import wait_until
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


def _job(queued: Operated, name: str) -> Manifest:
    return queued.cluster.existing(api_object(*RAY_JOB, name, namespace="research"))


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
    session = _job(queued, "session-notes")
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
    assert queued.pods(_job(queued, "session-wanted")) == []


def test_a_stopped_session_releases_its_pods(queued: Operated, on_cluster: list[str]) -> None:
    assert ask_here("cluster", "brief", "--gpus", "1", "--group", "a10g", "--detach", *on_cluster).status == 0
    session = _job(queued, "session-brief")
    wait_until(lambda: len(queued.pods(session)) == 3, seconds=_SECONDS)
    stopped = ask_here("stop", "session-brief", *on_cluster)
    assert (stopped.status, "session session-brief ends: 0.0" in stopped.out) == (0, True)
    assert queued.pods(session) == []


_CMD = 'torchrun train.py --note "it\'s $NODE_RANK" && exit 7'


def _submitted(queued: Operated, on_cluster: list[str], code: Path, *options: str) -> tuple[Manifest, str]:
    given = ["--cmd", _CMD, "--code", str(code), "--workers", "8", "--group", "a10g", "--name", "mine"]
    said = ask_here("run", *given, "--detach", *options, *on_cluster).out
    return _job(queued, "mine"), said


def test_a_command_is_queued_admitted_followed_and_its_exit_status_mirrored(
    queued: Operated, on_cluster: list[str], code: Path, tmp_path: Path
) -> None:
    first = queued.submit(job("first", team="research", group="a10g", workers=8))
    made, said = _submitted(queued, on_cluster, code)
    assert "job mine submitted to queue research of dev: 2 worker pods with 8 GPUs" in said
    queued.await_state(made, lambda state: state.stage == "queued" and "quota" in state.reason, what="queued")
    listed = ask_here("jobs", *on_cluster).out.splitlines()
    (row,) = [line.split() for line in listed if line.startswith("mine ")]
    assert row[1:3] == ["research", "queued"]
    queued.dashboards.say("mine", "RUNNING")
    queued.remove(first)
    queued.await_state(made, lambda state: state.stage == "running", what="running")
    head, *_ = expand(made)
    mount_parts(queued.cluster, head, tmp_path / "parts")
    delivered = deliver(head, tmp_path)
    assert delivered.returncode == 0, delivered.stderr
    assert (tmp_path / "delivered" / "files" / "train.py").read_text() == "print('trained')\n"
    queued.end(made, "FAILED", "Job entrypoint command failed with exit code 7. No logs available.")
    queued.await_state(made, lambda state: state.stage == "failed", what="failed")
    ended = ask_here("logs", "mine", *on_cluster)
    assert (ended.status, "the command exited with status 7" in ended.out) == (7, True)


def test_a_stopped_command_is_queued_again_and_an_ended_one_starts_again_with_its_code(
    queued: Operated, on_cluster: list[str], code: Path
) -> None:
    queued.dashboards.say("mine", "RUNNING")
    made, _ = _submitted(queued, on_cluster, code, "--restarts", "2", "--priority", "low")
    queued.await_state(made, lambda state: state.stage == "running", what="running")
    assert "job mine: its command gets SIGTERM on every node" in ask_here("stop", "mine", *on_cluster).out
    assert queued.pods(made) == []
    assert "job mine is queued again" in ask_here("resume", "mine", "--detach", *on_cluster).out

    queued.await_state(made, lambda state: state.stage == "running", what="running again")
    queued.end(made, "SUCCEEDED")
    queued.await_state(made, lambda state: state.stage == "done", what="done")
    settings = ("--set", "loop.epochs=3", "--detach")
    assert_refused(2, "runs a command of its own, which has no settings", "resume", "mine", *settings, *on_cluster)
    queued.dashboards.say("mine", "PENDING")
    assert ask_here("resume", "mine", "--detach", *on_cluster).status == 0
    again = _job(queued, "mine")
    assert again["metadata"]["uid"] != made["metadata"]["uid"]
    assert again["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "training-low"
    assert shlex.split(again["spec"]["entrypoint"]) == shlex.split(made["spec"]["entrypoint"])
    kept = queued.cluster.existing(api_object("v1", "ConfigMap", "mine-code-0", namespace="research"))
    assert [one["uid"] for one in kept["metadata"]["ownerReferences"]] == [again["metadata"]["uid"]]

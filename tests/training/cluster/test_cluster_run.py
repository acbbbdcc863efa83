"""A user's own command from the command line through the real Kueue and KubeRay; Ray's drivers and kubelets are fakes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from infra.spec.manifest import Manifest, api_object
from tests.engines.kubernetes_jobs import job
from tests.engines.kubernetes_operators import Operated
from tests.kuberay.expand import expand
from tests.training.cli.command import ask_here, assert_refused
from tests.training.cluster.code_of_jobs import deliver, mount_parts
from tests.training.cluster.commands import options_on
from training.cluster.objects import RAY_JOB

_CMD = 'torchrun train.py --note "it\'s $NODE_RANK" && exit 7'


@pytest.fixture
def on_cluster(queued: Operated, tmp_path: Path) -> list[str]:
    """Options of a command for the team research."""
    return options_on(queued, tmp_path)


def _job(queued: Operated, name: str) -> Manifest:
    found = queued.cluster.read(api_object(*RAY_JOB, name, namespace="research"))
    assert found is not None
    return found


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
    kept = queued.cluster.read(api_object("v1", "ConfigMap", "mine-code-0", namespace="research"))
    assert kept is not None
    assert [one["uid"] for one in kept["metadata"]["ownerReferences"]] == [again["metadata"]["uid"]]

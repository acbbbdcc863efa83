"""Who may not run the suite, and what it refuses before it submits anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engines.kubernetes_operators import Operated
from tests.training.cli.command import assert_refused
from tests.training.cluster.commands import options_on
from tests.training.cluster.conformance.suites import suite_jobs
from training.cli import main
from training.cluster.conformance import command
from training.errors import ExitStatus


@pytest.fixture
def member(queued: Operated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options of a command that somebody of team research gives: a kubeconfig cannot say so to Kubernetes's client for Python."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "connect", lambda *_, **__: queued.api("research"))
    return options_on(queued, tmp_path)


def test_a_member_of_a_team_is_told_which_permissions_are_missing(queued: Operated, member: list[str]) -> None:
    for said in ("list nodes in the cluster", "create pods in namespace research", "cluster.admin_roles of dev"):
        assert_refused(ExitStatus.REFUSED, said, "conformance", *member)
    assert suite_jobs(queued.cluster) == []


def test_a_member_of_a_team_checks_what_a_member_may(queued: Operated, member: list[str], tmp_path: Path) -> None:
    """A member may not look at nodes, so the suite waits for the pods of fake nodes, until its time is up."""
    assert main(["conformance", *member, "--only", "queue", "--only", "training", "--minutes", "0.1"]) == 1
    (record,) = (tmp_path / ".local" / "conformance" / "dev").glob("*.json")
    checks = json.loads(record.read_text())["checks"]
    verdicts = {one["name"]: one["verdict"] for one in checks}
    assert verdicts == {"queue.gang": "passed", "training.loss": "failed", "training.resume": "failed"}
    assert "not ended within 0.1 minutes" in checks[-1]["found"]
    assert suite_jobs(queued.cluster) == []


def test_a_suite_that_cannot_run_is_refused_with_the_reason(member: list[str]) -> None:
    for words, status, said in (
        (["--only", "trainign"], ExitStatus.WRONG_INPUT, "--only trainign: there is no such check"),
        (["--group", "t4"], ExitStatus.REFUSED, "group=t4: its GPUs are shared"),
        (["--prometheus", "prometheus:9090"], ExitStatus.WRONG_INPUT, "--prometheus prometheus:9090: not an address"),
        (["--junit", "/dev/null/results.xml"], ExitStatus.WRONG_INPUT, "/dev/null/results.xml: cannot be written"),
        (["--html", "."], ExitStatus.WRONG_INPUT, "cannot be written: Is a directory"),
        (["--env", "prod"], ExitStatus.WRONG_INPUT, "outputs of environment dev, not of prod"),
    ):
        assert_refused(status, said, "conformance", *member, *words)

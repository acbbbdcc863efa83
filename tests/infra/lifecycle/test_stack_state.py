"""Interrupted operations, protection and locks are explained before and after `pulumi` runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.lifecycle import pulumi_cli
from infra.lifecycle.caller import Caller
from infra.lifecycle.cli import main
from infra.lifecycle.stack_state import read_state
from infra.lifecycle.stage import AccountState
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.manifest import Manifest

GROUP = "urn:pulumi:dev::ray-train-platform::rtp:aws:NodeGroup$aws:eks/nodeGroup:NodeGroup::t4"
ROUTE = "urn:pulumi:dev::ray-train-platform::rtp:aws:Network$aws:ec2/natGateway:NatGateway::us-east-1a"
QUEUE = "urn:pulumi:dev::ray-train-platform::rtp:kubernetes:Objects$kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue::q"
Stack = Callable[..., None]


PARENT = "urn:pulumi:dev::ray-train-platform::rtp:aws:NodeGroup::t4"
PROVIDER = "urn:pulumi:dev::ray-train-platform::pulumi:providers:aws::aws"


def pending(operation: str, urn: str, **inputs: str) -> dict[str, Any]:
    """An operation as `pulumi stack export` prints it."""
    type_ = urn.split("::")[2].rpartition("$")[2]
    ends = {"parent": PARENT, "provider": f"{PROVIDER}::0123-45"}
    return {"type": operation, "resource": {"urn": urn, "type": type_, "inputs": inputs, **ends}}


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """Puts a `pulumi` on PATH that exports a state, and answers changes; it notes its other commands in a file."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    caller = Caller("111122223333", "arn:aws:sts::111122223333:assumed-role/platform-admin/test")
    monkeypatch.setattr("infra.lifecycle.preflight.caller_of", lambda _session: caller)
    nothing = AccountState(endpoint=None, missing=())
    for module in ("preflight", "bring_up"):
        monkeypatch.setattr(f"infra.lifecycle.{module}.read_account", lambda *_: nothing)
    monkeypatch.setattr("infra.lifecycle.commands.stack.checks.check", lambda _case: None)
    monkeypatch.setattr("infra.lifecycle.commands.stack.checks.notes", lambda _case: ())

    def put(*, operations: list[dict[str, Any]] = (), resources: list[dict[str, Any]] = (), says: str = "") -> None:  # type: ignore[assignment]
        state = {"deployment": {"pending_operations": list(operations), "resources": list(resources)}}
        (tmp_path / "state.json").write_text(json.dumps(state), encoding="utf-8")
        program = tmp_path / "pulumi"
        program.write_text(
            f"#!/bin/sh\ncase $2 in\nexport) cat {tmp_path}/state.json ;;\noutput) echo '{{}}' ;;\n"
            f"*) echo \"$1\" >> {tmp_path}/ran; echo 'progress'; {says or 'exit 0'} ;;\nesac\n"
        )
        program.chmod(0o755)

    return put


@pytest.fixture
def ran(tmp_path: Path) -> Callable[[], list[str]]:
    """The changes that `pulumi` was asked for."""

    def read() -> list[str]:
        file = tmp_path / "ran"
        return file.read_text().split() if file.exists() else []

    return read


@pytest.mark.parametrize("command", ["preview", "up", "destroy"])
def test_an_interrupted_creation_is_explained_before_pulumi_runs(
    command: str, stack: Stack, ran: Callable[[], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    stack(
        operations=[
            pending("creating", GROUP, clusterName="rtp-dev", nodeGroupName="t4-1a2b3c4"),
            pending("creating", ROUTE),
            pending("creating", QUEUE),
            pending("deleting", GROUP),
        ]
    )
    assert main([command, "--env", "dev"]) == 3
    said = capsys.readouterr().err
    ends = f"-s dev --parent 'parent={PARENT}' --provider 'provider={PROVIDER}' --protect=false --generate-code=false\n"
    assert (
        "creating aws:eks/nodeGroup:NodeGroup t4\n      if it exists: pulumi import aws:eks/nodeGroup:NodeGroup t4 "
        in said
    )
    assert f" t4 rtp-dev:t4-1a2b3c4 {ends}" in said
    assert f"pulumi import aws:ec2/natGateway:NatGateway us-east-1a ID {ends}" in said
    assert "LocalQueue q\n  deleting aws:eks/nodeGroup:NodeGroup t4\n" in said
    assert said.index("pulumi cancel -s dev") < said.index("pulumi refresh -s dev --clear-pending-creates")
    assert "Key=stack,Values=ray-train-platform/dev" in said
    assert ran() == []


def test_an_environment_without_a_stack_has_no_state(stack: Stack, tmp_path: Path) -> None:
    stack()
    (tmp_path / "pulumi").write_text("#!/bin/sh\necho \"error: no stack named 'dev' found\" >&2; exit 255\n")
    assert read_state("dev") is None
    (tmp_path / "pulumi").write_text("#!/bin/sh\necho 'error: no credentials' >&2; exit 255\n")
    with pytest.raises(PlatformError, match="pulumi stack export: error: no credentials"):
        read_state("dev")


@pytest.mark.parametrize(
    "message",
    ["error: the stack is currently locked by 1 lock(s).", "[409] Conflict: Another update is currently in progress."],
)
def test_a_lock_is_explained_after_pulumis_own_message(
    message: str, stack: Stack, capfd: pytest.CaptureFixture[str]
) -> None:
    stack(says=f"echo '{message}' >&2; exit 1")
    with pytest.raises(RefusedError, match="stack dev is locked by another pulumi") as caught:
        pulumi_cli.run("up", environment="dev", is_confirmed=True)
    assert "`pulumi cancel -s dev`" in caught.value.remedy
    said = capfd.readouterr()
    assert (said.out, said.err) == ("progress\n", f"{message}\n")


@pytest.mark.parametrize("number", ["INT", "TERM", "HUP"])
def test_a_signal_ends_a_command_only_after_pulumi_has_ended(number: str, stack: Stack, tmp_path: Path) -> None:
    stack(says=f"kill -{number} $PPID; sleep 1; touch {tmp_path}/ended; exit 1")
    with pytest.raises(KeyboardInterrupt):
        pulumi_cli.run("up", environment="dev", is_confirmed=True)
    assert (tmp_path / "ended").exists()


def test_a_protected_stack_keeps_its_jobs(
    stack: Stack, ran: Callable[[], list[str]], jobs: list[Manifest], capsys: pytest.CaptureFixture[str]
) -> None:
    stack(
        resources=[{"urn": "urn:pulumi:dev::p::aws:kms/key:Key::volumes", "type": "aws:kms/key:Key", "protect": True}]
    )
    assert main(["destroy", "--env", "dev", "--yes"]) == 3
    said = capsys.readouterr().err
    assert "has 1 protected resources: aws:kms/key:Key volumes" in said
    assert "pulumi state unprotect --all -s dev\n" in said
    assert "aws eks update-cluster-config --name rtp-dev --no-deletion-protection\n" in said
    assert "--db-instance-identifier rtp-dev-mlflow --no-deletion-protection" in said
    assert (len(jobs), ran()) == (1, [])


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Manifest]:
    """A cluster with a job, as far as `destroy` asks."""
    found: list[Manifest] = [{"kind": "RayJob", "metadata": {"namespace": "research", "name": "digits"}}]
    here = "infra.lifecycle.commands.stack"
    monkeypatch.setattr(f"{here}.StackCluster", lambda _settings: SimpleNamespace(api=object))
    monkeypatch.setattr(f"{here}.check_served", lambda _api: None)
    monkeypatch.setattr(f"{here}.find_workloads", lambda _api: list(found))
    monkeypatch.setattr(f"{here}.delete_workloads", lambda _api, **_options: found.clear())
    return found


def test_jobs_are_deleted_before_the_stack(stack: Stack, ran: Callable[[], list[str]], jobs: list[Manifest]) -> None:
    stack()
    assert main(["destroy", "--env", "dev", "--yes"]) == 0
    assert (jobs, ran()) == ([], ["destroy"])


@pytest.mark.parametrize(("answer", "status", "left"), [("dev", 0, 0), ("prod", 3, 1), (None, 3, 1)])
def test_jobs_are_deleted_only_after_the_environments_name_is_typed(
    answer: str | None,
    status: int,
    left: int,
    stack: Stack,
    ran: Callable[[], list[str]],
    jobs: list[Manifest],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def typed(_question: str) -> str:
        if answer is None:
            raise EOFError
        return answer

    stack()
    monkeypatch.setattr("builtins.input", typed)
    assert main(["destroy", "--env", "dev"]) == status
    assert len(jobs) == left
    assert ran() == (["destroy"] if status == 0 else [])
    assert "RayJob research/digits" in capsys.readouterr().out

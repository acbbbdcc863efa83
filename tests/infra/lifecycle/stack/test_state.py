"""Interrupted operations, protection and locks are explained before and after `pulumi` runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra.lifecycle.cli import main
from infra.lifecycle.stack import pulumi_cli
from infra.lifecycle.stack.state import read_state
from infra.policy.tokens import HELM_RELEASE
from infra.spec.errors import PlatformError, RefusedError
from tests.infra.lifecycle.conftest import Stack

GROUP = "urn:pulumi:dev::ray-train-platform::rtp:aws:NodeGroup$aws:eks/nodeGroup:NodeGroup::t4"
ROUTE = "urn:pulumi:dev::ray-train-platform::rtp:aws:Network$aws:ec2/natGateway:NatGateway::us-east-1a"
QUEUE = "urn:pulumi:dev::ray-train-platform::rtp:kubernetes:Objects$kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue::q"
RELEASE = "urn:pulumi:dev::ray-train-platform::rtp:kubernetes:Charts$kubernetes:helm.sh/v3:Release::kueue"
PARENT = "urn:pulumi:dev::ray-train-platform::rtp:aws:NodeGroup::t4"
PROVIDER = "urn:pulumi:dev::ray-train-platform::pulumi:providers:aws::aws"

_ORPHAN = """
import subprocess
provider = ["pulumi-resource-kubernetes", "-f", "/dev/null", "127.0.0.1:1"]
print(subprocess.Popen(provider, executable="/usr/bin/tail", stdout=-3, stderr=-3).pid)
"""


def pending(operation: str, urn: str, **inputs: str) -> dict[str, Any]:
    type_ = urn.split("::")[2].rpartition("$")[2]
    ends = {"parent": PARENT, "provider": f"{PROVIDER}::0123-45"}
    return {"type": operation, "resource": {"urn": urn, "type": type_, "inputs": inputs, **ends}}


def test_an_interrupted_update(stack: Stack, ran: Callable[[], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    stack(
        operations=[
            pending("creating", GROUP, clusterName="rtp-dev", nodeGroupName="t4-1a2b3c4"),
            pending("creating", ROUTE),
            pending("creating", QUEUE),
        ]
    )
    assert main(["preview", "--env", "dev"]) == 3
    capsys.readouterr()
    assert main(["up", "--env", "dev"]) == 3
    said = capsys.readouterr().err
    ends = f"-s dev --parent 'parent={PARENT}' --provider 'provider={PROVIDER}' --protect=false --generate-code=false --yes\n"
    assert "creating aws:eks/nodeGroup:NodeGroup t4\n      if it exists: pulumi import aws:eks/nodeGroup:NodeG" in said
    assert f" t4 rtp-dev:t4-1a2b3c4 {ends}" in said
    assert f"pulumi import aws:ec2/natGateway:NatGateway us-east-1a ID {ends}" in said
    assert "LocalQueue" not in said
    assert said.index("pulumi cancel -s dev --yes") < said.index("pulumi refresh -s dev --clear-pending-creates --yes")
    assert "Key=stack,Values=ray-train-platform/dev" in said
    assert ran() == []


def test_an_update_reads_what_was_being_changed_and_repeats_what_nothing_is_lost_with(
    stack: Stack, ran: Callable[[], list[str]], tmp_path: Path
) -> None:
    """A node group that AWS has deleted or changed meanwhile is not what the state says."""
    stack(operations=[pending("creating", QUEUE), pending("updating", GROUP), pending("deleting", ROUTE)])
    assert main(["preview", "--env", "dev"]) == 0
    assert main(["up", "--env", "dev", "--yes"]) == 0
    assert ran() == ["preview", f"refresh {GROUP} {ROUTE}", "stack", "up"]
    assert "pending_operations" not in json.loads((tmp_path / "imported.json").read_text())["deployment"]


def test_what_cannot_be_read_stays_an_interrupted_operation(stack: Stack, ran: Callable[[], list[str]]) -> None:
    stack(operations=[pending("updating", GROUP)], says="test $1 != refresh")
    assert main(["up", "--env", "dev", "--yes"]) == 1
    assert ran() == [f"refresh {GROUP}"]


def test_an_interrupted_upgrade_of_a_chart_is_made_again(stack: Stack, tmp_path: Path) -> None:
    """A refresh does not read a release's values, so the same as before would change nothing."""
    values = {"values": {"replicas": 1}, "name": "kueue", "namespace": "kueue-system"}
    release = {"urn": RELEASE, "type": HELM_RELEASE, "inputs": values, "outputs": {"__inputs": values, "status": {}}}
    stack(operations=[pending("updating", RELEASE)], resources=[release])
    assert main(["up", "--env", "dev", "--yes"]) == 0
    (left,) = json.loads((tmp_path / "imported.json").read_text())["deployment"]["resources"]
    assert (left["inputs"]["values"], left["outputs"]["__inputs"]["values"]) == ({}, {})
    assert left["inputs"]["name"] == "kueue"


def test_of_a_locked_stack_no_operation_is_forgotten(stack: Stack, ran: Callable[[], list[str]]) -> None:
    """They may be those of the update that holds the lock."""
    stack(operations=[pending("creating", QUEUE)], init="could not create stack: the stack is currently locked")
    assert main(["up", "--env", "dev", "--yes"]) == 3
    assert ran() == []


def test_a_provider_whose_engine_was_killed_is_ended() -> None:
    """It would go on installing a chart beside the next update."""
    with subprocess.Popen([sys.executable, "-c", _ORPHAN], stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        orphan = psutil.Process(int(engine.stdout.read()))
    assert pulumi_cli.end_orphans() >= 1
    psutil.wait_procs([orphan], timeout=10)
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE


def test_an_environment_without_a_stack_has_no_state(stack: Stack, tmp_path: Path) -> None:
    stack()
    (tmp_path / "pulumi").write_text("#!/bin/sh\necho \"error: no stack named 'dev' found\" >&2; exit 255\n")
    assert read_state("dev") is None
    (tmp_path / "pulumi").write_text("#!/bin/sh\necho 'error: no credentials' >&2; exit 255\n")
    with pytest.raises(PlatformError, match="pulumi stack export: error: no credentials"):
        read_state("dev")


def test_what_pulumi_needs_is_asked_for_first_with_a_remedy(
    stack: Stack, ran: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("infra.lifecycle.commands.stack.checks.check", lambda _: pytest.fail("later"))
    for said, remedy in (
        ("passphrase must be set with PULUMI_CONFIG_PASSPHRASE", "set PULUMI_CONFIG_PASSPHRASE"),
        ("failed to decrypt: incorrect passphrase", "set PULUMI_CONFIG_PASSPHRASE"),
        ("PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions", "`pulumi login`"),
    ):
        stack(secrets=f"echo 'error: {said}' >&2; exit 255")
        assert main(["preview", "--env", "dev"]) == 1
        assert f"{said}\n  remedy: {remedy}" in capsys.readouterr().err
    assert ran() == []


def test_without_a_terminal_pulumi_is_run_only_if_it_asks_nothing(stack: Stack, ran: Callable[[], list[str]]) -> None:
    stack()
    assert main(["up", "--env", "dev"]) == 3
    assert ran() == []
    assert main(["up", "--env", "dev", "--yes"]) == 0


def test_a_lock_is_said_once_with_its_holder(stack: Stack, capfd: pytest.CaptureFixture[str]) -> None:
    for message in (
        "the stack is currently locked by 1 lock(s).\n  me@here",
        "Another update is currently in progress.",
    ):
        stack(says=f"echo 'warning: first' >&2; echo 'error: {message}' >&2; exit 1")
        with pytest.raises(RefusedError, match=f"stack dev is locked by another .*{message.split()[-1]}") as caught:
            pulumi_cli.run("up", environment="dev", is_confirmed=True)
        assert "`pulumi cancel -s dev --yes`" in caught.value.remedy
        said = capfd.readouterr()
        assert (said.out, said.err) == ("progress\n", "warning: first\n")


@pytest.mark.usefixtures("hangups")
def test_a_signal_ends_a_command_only_after_pulumi_has_ended(stack: Stack, tmp_path: Path) -> None:
    for number in ("INT", "TERM", "HUP"):
        ended = tmp_path / f"ended-{number}"
        stack(says=f"kill -{number} $PPID; sleep 0.3; touch {ended}; exit 1")
        with pytest.raises(KeyboardInterrupt):
            pulumi_cli.run("up", environment="dev", is_confirmed=True)
        assert ended.exists(), number

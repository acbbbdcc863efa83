"""The commands `hold` and `release-queues`; the sandbox's tests run them on a real Kueue."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from infra.lifecycle.access.running import StackCluster
from infra.lifecycle.cli import main
from infra.lifecycle.commands.drift import _Found
from infra.lifecycle.drift.difference import Difference
from infra.lifecycle.rollout.jobs import RunningJob
from infra.lifecycle.stack import pulumi_cli
from infra.lifecycle.stack.stage import AccountState
from infra.spec.errors import RefusedError
from platform_charts.jobs.progress import Progress
from tests.infra.lifecycle.conftest import Stack

JOB = RunningJob(
    namespace="research",
    name="digits",
    is_placed=True,
    groups=frozenset({"a10g", "system"}),
    gpus=8,
    since=datetime(2026, 11, 22, 8, tzinfo=UTC),
    progress=Progress(40, 120, "epoch 1/3  loss 0.4000  12:30 left"),
)


def test_hold_names_jobs_and_waits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[object] = []
    here = "infra.lifecycle.commands.rollout"
    monkeypatch.setattr(StackCluster, "api", lambda _: object())
    monkeypatch.setattr(f"{here}.running_jobs", lambda _api, **_: [JOB])
    monkeypatch.setattr(f"{here}.hold_queues", lambda _api, mode: [mode])
    monkeypatch.setattr(f"{here}.await_empty", lambda _api, mode, *, seconds, **_: asked.append((mode, seconds)))
    assert main(["hold", "--env", "dev", "--hours", "0.5"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(
        "job research/digits: on a10g, system, 8 GPUs, since 2026-11-22 08:00 UTC, step 40/120, 12:30 left"
    )
    assert "queues held: Hold; release them: make release-queues ENV=dev\ndev: no job runs\n" in said
    assert main(["hold", "--env", "dev", "--drain", "--hours", "0.05"]) == 0
    assert "it saves, and resumes after the release" in capsys.readouterr().out
    assert asked == [("Hold", 1800), ("HoldAndDrain", 180)]


KEPT = Difference(where="cluster", resource="StorageClass gp3", kind="immutable", paths=("parameters",))
DELETED = Difference(where="cluster", resource="ConfigMap a/b", kind="deleted")
SAME = {"steps": [{"urn": "urn:pulumi:dev::p::a:b:C::d", "op": "same"}]}


@pytest.mark.parametrize(
    ("command", "status", "in_use", "holds"),
    [
        ("up --yes", 0, (), ["released", "named"]),
        ("up --yes", 0, ("research",), ["named"]),
        ("up --yes", 4, (), ["named"]),
        ("preview", 0, (), ["named"]),
        ("drift", 0, (), ["named"]),
    ],
)
def test_what_a_killed_update_held_is_released_by_one_that_is_done_and_named_last_by_every_other_command(
    stack: Stack,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    status: int,
    in_use: tuple[str, ...],
    holds: list[str],
) -> None:
    """Also where the stack is up to date, and not what an update holds that runs; one that fails names what Pulumi may have ended at."""
    stack()
    done: list[str] = []
    there = AccountState(endpoint="https://x", missing=())
    recovery, commands = "infra.lifecycle.commands.recovery", "infra.lifecycle.commands"
    for module in ("preflight.case", "stack.bring_up"):
        monkeypatch.setattr(f"infra.lifecycle.{module}.read_account", lambda *_: there)
    monkeypatch.setattr(StackCluster, "api", lambda _: object())
    monkeypatch.setattr(f"{recovery}.find_repairs", lambda *_, **_options: ())
    monkeypatch.setattr(f"{recovery}.holds_in_use", lambda _: in_use)
    monkeypatch.setattr(f"{recovery}.release_surely", lambda *_, **_options: done.append("released"))
    monkeypatch.setattr(f"{recovery}.say_held", lambda *_, **_options: done.append("named"))
    monkeypatch.setattr(f"{recovery}.compare", lambda *_: [DELETED, KEPT])
    monkeypatch.setattr(f"{commands}.stack._crds_to_apply", lambda _: False)
    monkeypatch.setattr(f"{commands}.drift._in_cluster", lambda *_: _Found(by_update=(), by_apply=()))
    monkeypatch.setattr(pulumi_cli, "shown_preview", lambda *_, **_options: (status, SAME))
    monkeypatch.setattr(pulumi_cli, "preview_document", lambda *_, **_options: SAME)
    name, *options = command.split()
    assert main([name, "--env", "dev", *options]) == status
    assert done == holds
    said = capsys.readouterr().out
    assert (str(KEPT) in said, str(DELETED) in said) == (status != 0, False)


def test_a_cluster_that_cannot_be_asked_for_its_queues_hides_no_error(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> None:
        raise RefusedError("the command's own error")

    def fail(_: object) -> None:
        raise RefusedError("no `aws` on PATH")

    stack()
    monkeypatch.setattr("infra.lifecycle.commands.stack.checks.check", refuse)
    monkeypatch.setattr(StackCluster, "api", fail)
    assert main(["preview", "--env", "dev"]) == 3
    assert "the command's own error" in capsys.readouterr().err


def test_without_a_cluster_it_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(StackCluster, "api", lambda _: None)
    assert main(["release-queues", "--env", "dev"]) == 3
    assert "dev has no cluster\n  remedy: bring it up: make up ENV=dev" in capsys.readouterr().err

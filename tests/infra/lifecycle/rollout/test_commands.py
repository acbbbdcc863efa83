"""The commands `hold` and `release-queues`; the sandbox's tests run them on a real Kueue."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from infra.lifecycle.access.running import StackCluster
from infra.lifecycle.cli import main
from infra.lifecycle.rollout.jobs import RunningJob
from platform_charts.jobs.progress import Progress

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


def test_without_a_cluster_it_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(StackCluster, "api", lambda _: None)
    assert main(["release-queues", "--env", "dev"]) == 3
    assert "dev has no cluster\n  remedy: bring it up: make up ENV=dev" in capsys.readouterr().err

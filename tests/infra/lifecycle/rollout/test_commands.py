"""The commands `hold` and `release-queues`, from the command line to the API server."""

from __future__ import annotations

import pytest

from infra.lifecycle.access.running import StackCluster
from infra.lifecycle.cli import main
from infra.lifecycle.rollout.queues import held_queues, release_queues
from tests.engines.kubernetes_jobs import job
from tests.engines.kubernetes_operators import Operated


@pytest.mark.timeout(300)
def test_hold_drains_a_job_and_release_gives_the_queues_back(
    queued: Operated, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(StackCluster, "api", lambda _: queued.cluster)
    submitted = queued.submit(job("moved", team="research", group="a10g", workers=8))
    queued.dashboards.say("moved", "RUNNING")
    queued.await_state(submitted, lambda state: state.stage == "running", what="running")
    try:
        assert main(["hold", "--env", "dev", "--hours", "0"]) == 3
        assert "DRAIN=1" in capsys.readouterr().err
        assert held_queues(queued.cluster) == ("platform", "research")
        assert main(["hold", "--env", "dev", "--drain", "--hours", "0.05"]) == 0
        said = capsys.readouterr().out
    finally:
        released = main(["release-queues", "--env", "dev"])
        release_queues(queued.cluster)
    assert released == 0
    assert "job research/moved: on a10g, heads, 8 GPUs, since 20" in said
    assert "it saves, and resumes after the release" in said
    assert "queues held: platform, research; release them: make release-queues ENV=dev" in said
    assert said.endswith("dev: no job runs\n")
    assert capsys.readouterr().out == "queues released: platform, research\n"
    queued.await_state(submitted, lambda state: state.stage == "running", what="running again")


def test_an_environment_without_a_cluster_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(StackCluster, "api", lambda _: None)
    assert main(["release-queues", "--env", "dev"]) == 3
    assert "dev has no cluster\n  remedy: bring it up: make up ENV=dev" in capsys.readouterr().err

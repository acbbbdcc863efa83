"""A command on a job finds its team, so TEAM is needed only where teams have jobs of one name."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.cluster.team_cluster import TEAM, TeamCluster
from training.cli import main


@pytest.fixture
def two_teams(team_cluster: TeamCluster, tmp_path: Path) -> Iterator[tuple[TeamCluster, TeamCluster]]:
    """The namespaces of two teams of one stack: of research, and of platform."""
    namespace = f"platform-{uuid.uuid4().hex[:8]}"
    outputs = json.loads(team_cluster.outputs.read_text(encoding="utf-8"))
    outputs["teams"] = [one if one["name"] == TEAM else {**one, "namespace": namespace} for one in outputs["teams"]]
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps(outputs), encoding="utf-8")
    with team_cluster.api.namespace(namespace):
        yield replace(team_cluster, outputs=file), replace(team_cluster, outputs=file, namespace=namespace)


def without_team(cluster: TeamCluster) -> list[str]:
    """The options that reach the cluster, but name no team."""
    return cluster.arguments[: cluster.arguments.index("--team")]


def test_a_job_is_found_in_the_only_team_that_has_it_and_two_teams_need_the_team(
    two_teams: tuple[TeamCluster, TeamCluster], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    research, platform = two_teams
    for job in research.api.items("ray.io/v1", "RayJob", namespace=research.namespace):
        research.api.delete(job)
    platform.submit(name)
    for words in ([name], []):
        assert main(["resume", *without_team(research), *words]) == 3
        said = capsys.readouterr().err
        assert f"job {name} is starting, so there is nothing to resume" in said
        assert f"make logs ENV=dev JOB={name} TEAM=platform" in said
    for command in ("stop", "logs", "resume", "cost", "profile"):
        assert main([command, *without_team(research), f"{name}x"]) == 2
        said = capsys.readouterr().err
        assert f"job {name}x: no such job of teams research, platform" in said
        assert f"did you mean {name}" in said
    research.submit(name)
    for words, what in (([name], f"job {name} exists in 2 teams"), ([], "2 teams have jobs")):
        assert main(["resume", *without_team(research), *words]) == 2
        assert f"{what}: research, platform\n  remedy: choose one with TEAM=… (--team)" in capsys.readouterr().err


def test_a_session_and_a_schedule_are_found_too(
    two_teams: tuple[TeamCluster, TeamCluster], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    research, _ = two_teams
    reached = without_team(research)
    assert research.run("cluster", "--gpus", "0", "--detach", name) == 0
    assert main(["shell", *reached, name]) == 3
    assert f"session session-{name} has no ready worker pod" in capsys.readouterr().err
    assert research.run("train", "--name", name, "--schedule", "0 2 * * *") == 0
    assert main(["unschedule", *reached, name]) == 0
    assert f"schedule {name} deleted" in capsys.readouterr().out
    assert main(["unschedule", *reached, name]) == 2
    assert f"schedule {name}: no such schedule of teams research, platform" in capsys.readouterr().err


def test_a_taken_name_is_answered_with_a_command_that_names_the_team(
    two_teams: tuple[TeamCluster, TeamCluster], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    research, _ = two_teams
    research.submit(name)
    assert research.run("train", "--name", name, "--detach") == 3
    assert f"make logs ENV=dev JOB={name} TEAM=research" in capsys.readouterr().err

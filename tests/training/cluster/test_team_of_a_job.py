"""A command on a job finds its team, so TEAM is needed only where teams have jobs of one name."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.cli.command import ask_here, assert_refused
from tests.training.cluster.team_cluster import TEAM, TeamCluster


@pytest.fixture
def two_teams(team_cluster: TeamCluster, tmp_path: Path) -> Iterator[tuple[TeamCluster, TeamCluster]]:
    """The namespaces of two teams of one stack: of research, and of platform."""
    namespace = f"platform-{uuid.uuid4().hex[:8]}"
    teams = json.loads(team_cluster.outputs.read_text())["teams"]
    teams = [one if one["name"] == TEAM else {**one, "namespace": namespace} for one in teams]
    with team_cluster.api.namespace(namespace):
        research = team_cluster.with_outputs(tmp_path, teams=teams)
        yield research, replace(research, namespace=namespace)


def without_team(cluster: TeamCluster) -> list[str]:
    """The options that reach the cluster, but name no team."""
    return cluster.arguments[: cluster.arguments.index("--team")]


def test_a_job_is_found_in_the_only_team_that_has_it(two_teams: tuple[TeamCluster, TeamCluster], name: str) -> None:
    research, platform = two_teams
    reached = without_team(research)
    for job in research.api.items("ray.io/v1", "RayJob", namespace=research.namespace):
        research.api.delete(job)
    platform.submit(name)
    for words in ([name], []):
        for said in (f"job {name} is starting, so there is nothing", f"make logs ENV=dev JOB={name} TEAM=platform"):
            assert_refused(3, said, "resume", *reached, *words)
    for command in ("stop", "logs", "resume", "cost", "profile"):
        said = f"job {name}x: no such job of teams research, platform\n  remedy: did you mean {name}"
        assert_refused(2, said, command, *reached, f"{name}x")
    research.submit(name)
    remedy = "research, platform\n  remedy: choose one with TEAM=… (--team)"
    assert_refused(2, f"job {name} exists in 2 teams: {remedy}", "resume", *reached, name)
    assert_refused(2, f"2 teams have jobs: {remedy}", "resume", *reached)


def test_a_session_and_a_schedule_are_found_too(two_teams: tuple[TeamCluster, TeamCluster], name: str) -> None:
    research, _ = two_teams
    reached = without_team(research)
    assert research.run("cluster", "--gpus", "0", "--detach", name) == 0
    assert_refused(3, f"session session-{name} has no ready worker pod", "shell", *reached, name)
    assert research.run("train", "--name", name, "--schedule", "0 2 * * *") == 0
    assert f"schedule {name} deleted" in ask_here("unschedule", *reached, name).out
    no_such = f"schedule {name}: no such schedule of teams research, platform"
    assert_refused(2, no_such, "unschedule", *reached, name)

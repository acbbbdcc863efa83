"""`make logs` after the pods are gone: a real API server, and CloudWatch by moto."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import boto3
import pytest
from moto import mock_aws

from tests.training.cluster.team_cluster import TeamCluster, dev_outputs

Ship = Callable[..., None]
GROUP = "/rtp/rtp-dev/containers"


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch, team_cluster: TeamCluster, name: str) -> Iterator[Ship]:
    """Ships a line of the job: a function of container, pod and content."""
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "test")
    assert dev_outputs()["logs"] == {"destination": "cloudwatch", "log_group": GROUP, "loki_url": None}
    with mock_aws():
        client = boto3.client("logs", region_name="us-east-1")
        client.create_log_group(logGroupName=GROUP)

        def ship(container: str, pod: str, **content: object) -> None:
            stream = f"{team_cluster.namespace}.{pod}.{container}"
            client.create_log_stream(logGroupName=GROUP, logStreamName=stream)
            record = {"namespace": team_cluster.namespace, "job": name, "pod": pod, "container": container, **content}
            event = {"timestamp": int(datetime.now(UTC).timestamp() * 1000), "message": json.dumps(record)}
            client.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=[event])

        yield ship


def test_the_log_of_a_job_that_is_gone_or_ended_is_printed(team_cluster: TeamCluster, shipped: Ship, name: str) -> None:
    line = {"time": "2026-11-21T08:00:00.000Z", "rank": 1, "message": "one"}
    shipped("ray-job-submitter", f"{name}-abcde", log="rank 3 died")
    shipped("ray-worker", f"{name}-worker", record=line)
    shipped("ray-head", f"{name}-head", log="the head's")
    answer = team_cluster.ask("logs", name)
    assert (answer.status, answer.out) == (0, "rank 3 died\n")
    assert f"pod {name}-abcde, " in answer.err
    team_cluster.submit(name)
    team_cluster.operator_writes(name, jobDeploymentStatus="Failed", jobStatus="FAILED", message="exit code 1")
    for words, said in ((("--rank", "1"), f"{json.dumps(line)}\n"), (("--pod", f"{name}-head"), "the head's\n")):
        answer = team_cluster.ask("logs", name, *words)
        assert (answer.status, answer.out) == (0, said)
    answer = team_cluster.ask("logs", name)
    assert answer.status == 1
    assert answer.out.startswith("rank 3 died\n"), "the state comes after the log"
    assert "exit code 1" in answer.out


@pytest.mark.usefixtures("shipped")
def test_a_line_found_nowhere_is_an_error_that_names_every_place(team_cluster: TeamCluster, name: str) -> None:
    team_cluster.submit(name)
    for place in ("has no worker pods", f"group {GROUP} in us-east-1 has no such line since", "logs/rank-1.jsonl"):
        team_cluster.refuses(3, place, "logs", name, "--rank", "1")
    team_cluster.refuses(3, "no such job in namespace", "logs", "nobody")

"""`make logs` after the pods are gone: a real API server, and CloudWatch by moto."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import boto3
import pytest
from moto import mock_aws

from infra.kube.api import KubernetesApi
from tests.training.cluster.team_cluster import TeamCluster, dev_outputs
from training.cli import main
from training.cluster.submission import submit

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


def logs(team_cluster: TeamCluster, *arguments: str) -> int:
    return main(["logs", *team_cluster.arguments, *arguments])


def test_the_driver_log_of_a_job_that_is_gone_is_printed(
    team_cluster: TeamCluster, shipped: Ship, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped("ray-job-submitter", f"{name}-abcde", log="epoch 1: loss 0.5")
    shipped("ray-worker", f"{name}-worker", log="not the driver's")
    assert logs(team_cluster, name) == 0
    printed = capsys.readouterr()
    assert printed.out == "epoch 1: loss 0.5\n"
    assert f"pod {name}-abcde, " in printed.err


def test_a_ranks_log_is_printed_after_its_pods_are_gone(
    team_cluster: TeamCluster, api: KubernetesApi, shipped: Ship, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(api, team_cluster.objects(name), env="dev")
    line = {"time": "2026-11-21T08:00:00.000Z", "rank": 1, "message": "one"}
    shipped("ray-worker", f"{name}-worker", record=line)
    assert logs(team_cluster, name, "--rank", "1") == 0
    assert capsys.readouterr().out == f"{json.dumps(line)}\n"


def test_a_pods_log_is_printed_after_it_is_gone(
    team_cluster: TeamCluster, api: KubernetesApi, shipped: Ship, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(api, team_cluster.objects(name), env="dev")
    shipped("ray-head", f"{name}-head", log="the head's")
    assert logs(team_cluster, name, "--pod", f"{name}-head") == 0
    assert capsys.readouterr().out == "the head's\n"


def test_the_log_of_a_finished_job_comes_before_its_state(
    team_cluster: TeamCluster, api: KubernetesApi, shipped: Ship, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(api, team_cluster.objects(name), env="dev")
    team_cluster.operator_writes(name, jobDeploymentStatus="Failed", jobStatus="FAILED", message="exit code 1")
    shipped("ray-job-submitter", f"{name}-abcde", log="rank 3 died")
    assert logs(team_cluster, name) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("rank 3 died\n")
    assert "exit code 1" in printed


def test_a_line_found_nowhere_is_an_error_that_names_every_place(
    team_cluster: TeamCluster, api: KubernetesApi, shipped: Ship, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    del shipped
    submit(api, team_cluster.objects(name), env="dev")
    assert logs(team_cluster, name, "--rank", "1") == 3
    said = capsys.readouterr().err
    assert f"job {name} has no worker pods" in said
    assert f"CloudWatch log group {GROUP} in us-east-1 has no such line since" in said
    assert "logs/rank-1.jsonl" in said
    assert logs(team_cluster, "nobody") == 3
    assert "no such job in namespace" in capsys.readouterr().err

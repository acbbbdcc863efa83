"""`make resize ENV=…`: from the command line to the annotation that the sizer reads, on a real API server."""

from __future__ import annotations

import pytest

from infra.spec.cluster_names import MOST_ANNOTATION
from tests.training.cluster.team_cluster import TeamCluster
from training.cli import main

_GPUS = ("--use-gpu", "--group", "a10g")


def run(cluster: TeamCluster, *arguments: str) -> int:
    return main([arguments[0], *cluster.arguments, *arguments[1:]])


def submitted(cluster: TeamCluster, name: str, *arguments: str) -> None:
    assert run(cluster, "train", "--name", name, "--detach", *arguments) == 0


def limit_of(cluster: TeamCluster, name: str) -> str | None:
    job = cluster.job(name)
    assert job is not None
    found: str | None = job["metadata"]["annotations"].get(MOST_ANNOTATION)
    return found


def test_a_job_is_limited_in_whole_pods(
    team_cluster: TeamCluster, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted(team_cluster, name, "--num-workers", "2-8", *_GPUS)
    assert run(team_cluster, "resize", name, "--workers", "4") == 0
    said = f"job {name}: grows to at most 4 workers when its queue has room; make jobs ENV=dev shows it"
    assert capsys.readouterr().out.splitlines()[-1] == said
    assert limit_of(team_cluster, name) == "2"


def test_a_job_that_has_more_returns_them(
    team_cluster: TeamCluster, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted(team_cluster, name, "--num-workers", "1-4", *_GPUS)
    job = team_cluster.job(name)
    assert job is not None
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    team_cluster.api.patch(job, {"spec": {"rayClusterSpec": {"workerGroupSpecs": [{**group, "replicas": 4}]}}})
    assert run(team_cluster, "resize", name, "--workers", "1") == 0
    said = "returns 3 of its 4 worker pods within a minute, commits its next step and continues with 1 worker;"
    assert said in capsys.readouterr().out
    assert limit_of(team_cluster, name) == "1"


@pytest.mark.parametrize(
    ("range_of_workers", "workers", "status", "said"),
    [
        pytest.param("2-8", "3", 2, ["workers=3: the run can have 2, 4, 8 of", "use 2 or 4"], id="does not divide the batch"),
        pytest.param("2-8", "16", 2, ["use 8"], id="beyond the range"),
        pytest.param("3-6", "4", 2, ["has 3 of its workers, so it can have 3, 6"], id="not whole pods"),
        pytest.param("4", "2", 2, ["scale.workers=4 is not a range"], id="not elastic"),
    ],
)  # fmt: skip
def test_a_number_that_a_job_cannot_have_is_refused_with_the_nearest(
    team_cluster: TeamCluster,
    name: str,
    range_of_workers: str,
    workers: str,
    status: int,
    said: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    batch = "48" if range_of_workers == "3-6" else "64"
    submitted(team_cluster, name, "--num-workers", range_of_workers, "--batch", batch, *_GPUS)
    assert run(team_cluster, "resize", name, "--workers", workers) == status
    error = capsys.readouterr().err
    assert all(part in error for part in said), error
    assert limit_of(team_cluster, name) is None


def test_a_job_that_is_over_is_refused(
    team_cluster: TeamCluster, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted(team_cluster, name, "--num-workers", "1-4", *_GPUS)
    team_cluster.operator_writes(name, jobDeploymentStatus="Complete", jobStatus="SUCCEEDED")
    assert run(team_cluster, "resize", name, "--workers", "2") == 3
    error = capsys.readouterr().err
    assert f"job {name} is already done" in error
    assert f"make resume ENV=dev JOB={name} TEAM=research SET=scale.workers=2" in error


def test_a_command_has_a_fixed_number_of_workers(
    team_cluster: TeamCluster, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(team_cluster, "run", "--name", name, "--detach", "--cmd", "sleep 1") == 0
    assert run(team_cluster, "resize", name, "--workers", "2") == 3
    assert f"job {name} does not train one model, so its number of workers is fixed" in capsys.readouterr().err
    assert limit_of(team_cluster, name) is None

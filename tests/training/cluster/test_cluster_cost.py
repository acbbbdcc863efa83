"""`make cost` of jobs, from the command line to a real API server, with statuses as KubeRay, Kueue and kubelets write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from infra.spec.catalog import load_catalog
from infra.spec.manifest import Manifest, api_object
from platform_charts.jobs.scheduling import JOB_LABEL
from tests.training.cluster.team_cluster import TeamCluster

GPU_JOB = ("--use-gpu", "--num-workers", "8", "--group", "a10g", "--set", "loop.global_batch=64")
"""Two worker pods, each with a whole node of four GPUs."""

HOUR = timedelta(hours=1)


def price(instance: str) -> float:
    """Of a whole node, in dollars per hour."""
    found = load_catalog().find_instance(instance).usd_per_hour
    assert found is not None
    return found


JOB_PRICE = 2 * price("g5.12xlarge") + price("m7i.xlarge") / 2
"""Dollars per hour of `GPU_JOB`: two whole nodes, and half of a head node, whose memory the head takes half of."""


@pytest.fixture
def now() -> datetime:
    """The start of a test, to which its times are relative, so that the differences between them are exact."""
    return datetime.now(UTC).replace(microsecond=0)


def at(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def gpu_job(cluster: TeamCluster, name: str) -> None:
    assert cluster.run("train", "--name", name, *GPU_JOB, "--detach") == 0


def admitted(cluster: TeamCluster, name: str, *, since: datetime, past: int = 0, holds: bool = True) -> None:
    """Admit a job to its group, or evict it, like Kueue."""
    cluster.queue(name, Admitted=holds)
    workload = cluster.workload(name)
    assert workload is not None
    condition = {"type": "Admitted", "status": str(holds), "reason": "Admitted", "message": ""}
    conditions = [{**condition, "lastTransitionTime": at(since)}]
    cluster.api.update_status(workload, {"conditions": conditions, "accumulatedPastExecutionTimeSeconds": past})


def pod(cluster: TeamCluster, name: str, role: str, number: int) -> Manifest:
    """One of a job's pods, without a grace period because no kubelet would end it."""
    labels = {JOB_LABEL: name, "ray.io/node-type": role}
    made = api_object("v1", "Pod", f"{name}-{role}-{number}", namespace=cluster.namespace, labels=labels)
    container = {"name": f"ray-{role}", "image": "x"}
    return {**made, "spec": {"nodeName": "none", "terminationGracePeriodSeconds": 0, "containers": [container]}}


def test_a_running_job_is_idle_before_its_driver_starts(team_cluster: TeamCluster, name: str, now: datetime) -> None:
    gpu_job(team_cluster, name)
    admitted(team_cluster, name, since=now - 3 * HOUR)
    status = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "rayJobInfo": {"startTime": at(now - HOUR)}}
    team_cluster.operator_writes(name, **status)
    pods = [pod(team_cluster, name, "head", 0), *(pod(team_cluster, name, "worker", one) for one in range(2))]
    with team_cluster.api.applied(*pods) as made:
        for one, hours in zip(made, (2, 2, 1), strict=True):
            scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(now - hours * HOUR)}
            team_cluster.api.update_status(one, {"phase": "Running", "conditions": [scheduled]})
        said = team_cluster.ask("cost", name).out
    found = re.search(
        r"cost +\$([\d.]+), since its pods .*\n +idle +\$([\d.]+), ([\d.]+) % of the time: no driver", said
    )
    assert found is not None
    dollars = 2 * price("m7i.xlarge") / 2 + 3 * price("g5.12xlarge")
    # The test takes some time, in which the pods go on holding their nodes.
    assert float(found[1]) == pytest.approx(dollars, rel=0.05)
    assert float(found[2]) == pytest.approx(dollars / 2, rel=0.05)
    assert float(found[3]) == pytest.approx(50, abs=3)


def test_a_queued_job_costs_nothing_the_team_is_the_sum_of_its_jobs_and_without_prices_there_is_a_reason(
    team_cluster: TeamCluster, name: str, now: datetime, tmp_path: Path
) -> None:
    for letter in "abc":
        gpu_job(team_cluster, f"{name}-{letter}")
    for letter in "bc":  # stopped: what it held is past
        admitted(team_cluster, f"{name}-{letter}", since=now - HOUR, past=7200, holds=False)
    assert "it has held no node so far, which costs nothing" in team_cluster.ask("cost", f"{name}-a").out
    rows = {line.split()[0]: line.split() for line in team_cluster.ask("cost").out.splitlines() if name in line}
    assert rows[f"{name}-a"][-2:] == ["0.00", "$0.00"]
    for letter in "bc":
        assert rows[f"{name}-{letter}"][-3:] == ["8", "16.00", f"${2 * JOB_PRICE:.2f}"]
    said = team_cluster.with_outputs(tmp_path, region="eu-north-1").ask("cost", f"{name}-b").out
    assert "2 workers  on g5.12xlarge  unknown  4.00 hours  unknown" in said
    assert "the price table is of us-east-1, the stack is in eu-north-1" in said

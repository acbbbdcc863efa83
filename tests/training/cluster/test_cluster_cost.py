"""`make cost` of jobs, from the command line to a real API server, with statuses as KubeRay, Kueue and kubelets write them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from infra.kube.api import KubernetesApi
from infra.spec.catalog import load_catalog
from infra.spec.manifest import Manifest, api_object
from platform_charts.jobs.scheduling import JOB_LABEL
from tests.training.cluster.team_cluster import TeamCluster
from training.cli import main
from training.cluster.submission import submit
from training.environment import dollars_per_hour

GPU_JOB = ("--use-gpu", "--num-workers", "8", "--group", "a10g", "--set", "loop.global_batch=64")
"""Two worker pods, each with a whole node of four GPUs."""

HOUR = timedelta(hours=1)

BEGAN = datetime.now(UTC).replace(microsecond=0)
"""Start of a test. Its times are relative to it, so that the differences between them are exact."""


@pytest.fixture(autouse=True)
def starting_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a long session the tests begin long after this module was imported."""
    monkeypatch.setattr(f"{__name__}.BEGAN", datetime.now(UTC).replace(microsecond=0))


def run(cluster: TeamCluster, command: str, *arguments: str) -> int:
    """Run a command in the team's namespace."""
    return main([command, *cluster.arguments, *arguments])


def ago(time: timedelta) -> str:
    """A time in the past as Kubernetes writes it."""
    return f"{BEGAN - time:%Y-%m-%dT%H:%M:%SZ}"


def price(instance: str) -> float:
    """Of a whole node, in dollars per hour."""
    found = load_catalog().find_instance(instance).usd_per_hour
    assert found is not None
    return found


def job_price() -> float:
    """Dollars per hour of `GPU_JOB`: two whole nodes, and half of a head node, whose memory the head takes half of."""
    return 2 * price("g5.12xlarge") + price("m7i.xlarge") / 2


def gpu_job(cluster: TeamCluster, name: str) -> None:
    """Submit one."""
    assert run(cluster, "train", "--name", name, *GPU_JOB, "--detach") == 0


def admitted(cluster: TeamCluster, name: str, *, since: timedelta, past: int = 0, holds: bool = True) -> None:
    """Admit a job to its group, or evict it, like Kueue."""
    cluster.queue(name, Admitted=holds)
    workload = cluster.workload(name)
    assert workload is not None
    condition = {"type": "Admitted", "status": str(holds), "reason": "Admitted", "message": ""}
    cluster.api.update_status(
        workload,
        {"conditions": [{**condition, "lastTransitionTime": ago(since)}], "accumulatedPastExecutionTimeSeconds": past},
    )


def pod(cluster: TeamCluster, name: str, role: str, number: int) -> Manifest:
    """One of a job's pods, without a grace period because no kubelet would end it."""
    labels = {JOB_LABEL: name, "ray.io/node-type": role}
    made = api_object("v1", "Pod", f"{name}-{role}-{number}", namespace=cluster.namespace, labels=labels)
    container = {"name": f"ray-{role}", "image": "x"}
    return {**made, "spec": {"nodeName": "none", "terminationGracePeriodSeconds": 0, "containers": [container]}}


def on_a_node(since: timedelta) -> Mapping[str, object]:
    """The status of a pod that got its node at that time."""
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(since)}
    return {"phase": "Running", "conditions": [scheduled]}


def test_a_finished_job_costs_its_admissions_times_its_parts_of_nodes(
    team_cluster: TeamCluster, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu_job(team_cluster, name)
    admitted(team_cluster, name, since=4 * HOUR, past=3600)
    team_cluster.operator_writes(
        name,
        jobDeploymentStatus="Complete",
        jobStatus="SUCCEEDED",
        endTime=ago(2 * HOUR + timedelta(minutes=1)),  # its pods stay for a minute
        succeeded=1,
    )
    capsys.readouterr()
    assert run(team_cluster, "cost", name) == 0
    said = capsys.readouterr().out
    assert f"job {name}: done" in said
    assert "1 head     on m7i.xlarge   $0.10 an hour each  3.00 hours" in said
    assert "2 workers  on g5.12xlarge  $5.67 an hour each  6.00 hours" in said
    assert f"cost   ${3 * job_price():.2f}, from its admission by the queue, because its pods are gone" in said
    assert "idle" not in said, "an earlier admission's driver is not known"


def test_a_running_job_costs_what_its_pods_hold_and_is_idle_before_its_driver(
    team_cluster: TeamCluster, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu_job(team_cluster, name)
    admitted(team_cluster, name, since=3 * HOUR)
    team_cluster.operator_writes(
        name, jobDeploymentStatus="Running", jobStatus="RUNNING", rayJobInfo={"startTime": ago(HOUR)}
    )
    pods = [pod(team_cluster, name, "head", 0), *(pod(team_cluster, name, "worker", one) for one in range(2))]
    with team_cluster.api.applied(*pods) as made:
        for one, hours in zip(made, (2, 2, 1), strict=True):
            team_cluster.api.update_status(one, on_a_node(hours * HOUR))
        capsys.readouterr()
        assert run(team_cluster, "cost", name) == 0
    found = re.search(
        r"cost +\$([\d.]+), since its pods got their nodes\n +idle +\$([\d.]+), ([\d.]+) % of the time: no driver ran",
        capsys.readouterr().out,
    )
    assert found is not None
    dollars = 2 * price("m7i.xlarge") / 2 + 3 * price("g5.12xlarge")
    # The test takes some time, in which the pods go on holding their nodes.
    assert float(found[1]) == pytest.approx(dollars, rel=0.05)
    assert float(found[2]) == pytest.approx(dollars / 2, rel=0.05)
    assert float(found[3]) == pytest.approx(50, abs=3)


def test_a_queued_job_costs_nothing_and_the_team_is_the_sum_of_its_jobs(
    team_cluster: TeamCluster, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for letter in "abc":
        gpu_job(team_cluster, f"{name}-{letter}")
    for letter in "bc":
        admitted(team_cluster, f"{name}-{letter}", since=HOUR, past=7200, holds=False)  # stopped: what it held is past
    capsys.readouterr()
    assert run(team_cluster, "cost", f"{name}-a") == 0
    assert "it has held no node so far, which costs nothing" in capsys.readouterr().out
    assert run(team_cluster, "cost") == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if name in line}
    assert rows[f"{name}-a"][-2:] == ["0.00", "$0.00"]
    for letter in "bc":
        assert rows[f"{name}-{letter}"][-3:] == ["8", "16.00", f"${2 * job_price():.2f}"]


def test_a_job_in_a_region_without_prices_has_hours_and_a_reason(
    team_cluster: TeamCluster, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu_job(team_cluster, name)
    admitted(team_cluster, name, since=2 * HOUR, past=3600, holds=False)
    elsewhere = {**json.loads(team_cluster.outputs.read_text(encoding="utf-8")), "region": "eu-north-1"}
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps(elsewhere), encoding="utf-8")
    capsys.readouterr()
    arguments = [str(file) if one == str(team_cluster.outputs) else one for one in team_cluster.arguments]
    assert main(["cost", *arguments, name]) == 0
    said = capsys.readouterr().out
    assert "2 workers  on g5.12xlarge  unknown  2.00 hours  unknown" in said
    assert "the price table is of us-east-1, the stack is in eu-north-1" in said


def test_an_unknown_job_is_refused_with_the_nearest_name(
    team_cluster: TeamCluster, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu_job(team_cluster, name)
    assert run(team_cluster, "cost", f"{name}x") == 2
    assert f"did you mean {name}" in capsys.readouterr().err


def test_the_driver_of_a_job_knows_the_price_of_its_pods(
    team_cluster: TeamCluster, api: KubernetesApi, name: str
) -> None:
    made = submit(api, team_cluster.objects(name), env="dev")
    (container,) = made["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    head, worker = 1 / 2, 1 / 3  # of a head node: half of its memory; one of its three cores, and a third of its memory
    assert dollars_per_hour(variables) == pytest.approx((head + 2 * worker) * price("m7i.xlarge"), rel=1e-5)

"""Backups and drills on a real API server: admission, who may start them, and the commands that follow their Jobs.

There is no kubelet: the tests write the status of pods in its place. The controllers of Jobs and CronJobs are real.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from infra.kube.errors import ApiError
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.lifecycle.upgrade.backups import ClusterBackups
from infra.spec.cluster_names import MLFLOW_BACKUP, MLFLOW_NAMESPACE, MLFLOW_RESTORE_DRILL
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest, api_object
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_platform import Environment, in_dev
from tests.engines.report_table import skipped
from tests.waiting import wait_until
from training.cluster.backup import Output, follow_job, start_job
from training.cluster.platform_job import PodsOfJob
from training.errors import ExitStatus

pytestmark = in_dev

DRILL = api_object("batch/v1", "CronJob", MLFLOW_RESTORE_DRILL, namespace=MLFLOW_NAMESPACE)


@pytest.fixture
def started(environment: Environment) -> Iterator[Manifest]:
    """A Job of a drill of a named backup."""
    found = start_job(environment.cluster, MLFLOW_RESTORE_DRILL, ["--backup", "b1"], environment="dev")
    yield found
    environment.cluster.delete_all([{**found, "metadata": {**found["metadata"], "uid": None}}])


def end_pod(cluster: Cluster, job: Manifest, code: int, *, container: str = "mlflow") -> None:
    """End the pod of a Job like the kubelet."""
    metadata = job["metadata"]
    pods = PodsOfJob(cluster, metadata["namespace"], metadata["name"], metadata["uid"])
    wait_until(lambda: pods.submitter() is not None)
    pod = pods.submitter()
    assert pod is not None
    times = {"startedAt": "2026-11-22T10:00:00Z", "finishedAt": "2026-11-22T10:00:01Z"}
    status = {"name": container, "image": "x", "imageID": "x", "ready": False, "restartCount": 0}
    state = {"terminated": {"exitCode": code, "reason": "Error", **times}}
    phase = "Failed" if code else "Succeeded"
    cluster.update_status(pod, {"phase": phase, "containerStatuses": [{**status, "state": state}]})


def test_a_job_is_that_of_the_cron_job_with_more_arguments(environment: Environment, started: Manifest) -> None:
    cron_job = environment.cluster.read(DRILL)
    assert cron_job is not None
    (container,) = started["spec"]["template"]["spec"]["containers"]
    assert container["command"][-3:] == ["restore-drill", "--backup", "b1"]
    (expected,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert {**container, "command": None} == {**expected, "command": None}
    assert expected["command"][-1] == "restore-drill"


def test_a_drill_that_found_differences_fails_with_its_first_pod_and_ends_the_command_with_its_status(
    environment: Environment, started: Manifest
) -> None:
    end_pod(environment.cluster, started, 1)
    assert follow_job(environment.cluster, started, "the drill", Output(as_json=False)) == ExitStatus.FAILED


def test_the_alert_sees_the_success_of_a_drill_that_was_started_by_hand(
    environment: Environment, started: Manifest
) -> None:
    """The CronJob's status is what kube-state-metrics reports."""
    cluster = environment.cluster
    end_pod(cluster, started, 0)
    assert follow_job(cluster, started, "the drill", Output(as_json=False)) == ExitStatus.DONE
    job = cluster.await_(started, lambda one: "completionTime" in one.get("status", {}), what="complete")
    completed = job["status"]["completionTime"]
    cluster.await_(
        DRILL,
        lambda one: one.get("status", {}).get("lastSuccessfulTime", "") >= completed,
        what=f"successful at {completed}",
        seconds=60,
    )


def test_an_upgrade_asks_for_a_backup_and_a_drill_of_today(environment: Environment, started: Manifest) -> None:
    cluster = environment.cluster
    backup = start_job(cluster, MLFLOW_BACKUP, [], environment="dev")
    assert ClusterBackups(cluster, now=datetime(2126, 1, 1, tzinfo=UTC)).obstacle() is not None
    wait_until(lambda: ClusterBackups(cluster, now=datetime.now(UTC)).running() is not None)
    for job in (backup, started):
        end_pod(cluster, job, 0)
    now = datetime.now(UTC)
    wait_until(lambda: ClusterBackups(cluster, now=now).obstacle() is None, seconds=60)
    assert ClusterBackups(cluster, now=now).running() is None
    cluster.delete_all([{**backup, "metadata": {**backup["metadata"], "uid": None}}])
    later = ClusterBackups(cluster, now=now + timedelta(hours=25)).obstacle()
    assert re.fullmatch(r"the last backup of MLflow that succeeded is of \S+, more than 24 hours ago", str(later))


def test_databases_can_be_switched_where_no_pod_of_the_server_stays_up(
    environment: Environment, control_plane: ControlPlane
) -> None:
    """The command of docs/BACKUP.md, which copies a pod of the server: with its environment and account, outside of its Service."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        skipped("Kubernetes API", "no kubectl on PATH", "install kubectl")
    cluster = environment.cluster
    wait_until(lambda: bool(_servers(cluster)))
    server = _servers(cluster)[0]
    place = [f"--kubeconfig={control_plane.kubeconfig}", "-n", MLFLOW_NAMESPACE]
    switch = ["--", "python", "-m", "mlflow_server", "switch"]
    copy = ["--copy-to=mlflow-switch", "--container=mlflow", "--profile=restricted", *switch]
    subprocess.run([kubectl, *place, "debug", server["metadata"]["name"], *copy], check=True)
    made = api_object("v1", "Pod", "mlflow-switch", namespace=MLFLOW_NAMESPACE)
    found = cluster.read(made)
    assert found is not None
    (container,), (original,) = found["spec"]["containers"], server["spec"]["containers"]
    assert [*container.get("command", []), *container.get("args", [])][-1] == "switch"
    assert container["env"] == original["env"]
    assert found["spec"]["serviceAccountName"] == server["spec"]["serviceAccountName"]
    assert "livenessProbe" not in container
    assert "app.kubernetes.io/name" not in found["metadata"].get("labels", {})
    cluster.delete_all([made])


def _servers(cluster: Cluster) -> list[Manifest]:
    """Pods of MLflow's server."""
    return cluster.items("v1", "Pod", namespace=MLFLOW_NAMESPACE, labels="app.kubernetes.io/name=mlflow")


def test_a_member_of_a_team_can_start_neither_and_a_cluster_of_an_earlier_release_has_none(
    environment: Environment,
) -> None:
    with pytest.raises(RefusedError, match="the cluster of dev has no CronJob mlflow/earlier"):
        start_job(environment.cluster, "earlier", [], environment="dev")
    member = environment.member(environment.team)
    for name in (MLFLOW_BACKUP, MLFLOW_RESTORE_DRILL):
        with pytest.raises(ApiError, match="cannot get resource"):
            start_job(member, name, [], environment="dev")

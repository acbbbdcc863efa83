"""What the CronJobs of a real API server say about backups of MLflow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from infra.lifecycle.upgrade.backups import ClusterBackups
from infra.spec.cluster_names import MLFLOW_BACKUP, MLFLOW_NAMESPACE, MLFLOW_RESTORE_DRILL
from infra.spec.manifest import Manifest, api_object
from tests.engines.kubernetes import Cluster

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def cluster(kubernetes_api: Cluster) -> Iterator[Cluster]:
    with kubernetes_api.namespace(MLFLOW_NAMESPACE):
        yield kubernetes_api


def test_a_recent_backup_that_was_restored_lately_is_good_enough(cluster: Cluster) -> None:
    backups = ClusterBackups(cluster, now=NOW)
    with cluster.applied(_schedule(MLFLOW_BACKUP), _schedule(MLFLOW_RESTORE_DRILL)):
        assert backups.obstacle() == "no backup of MLflow has succeeded yet"
        _succeed(cluster, MLFLOW_BACKUP, hours_ago=2)
        assert backups.obstacle() == "no restore drill has succeeded yet"
        _succeed(cluster, MLFLOW_RESTORE_DRILL, hours_ago=1)
        assert backups.obstacle() is None
        assert list(backups.gaps()) == []
        _succeed(cluster, MLFLOW_RESTORE_DRILL, hours_ago=25)
        said = "the last restore drill that succeeded is of 2026-11-23T11:00:00Z, more than 24 hours ago"
        assert backups.obstacle() == said


def test_schedules_that_are_suspended_or_missing_are_no_obstacle_and_are_said(cluster: Cluster) -> None:
    backups = ClusterBackups(cluster, now=NOW)
    with cluster.applied(_schedule(MLFLOW_BACKUP, is_suspended=True)):
        assert backups.obstacle() is None
        assert list(backups.gaps()) == [
            "the backup of MLflow is suspended by the settings, and was not looked for",
            "the stack has no restore drill yet, so nothing restores MLflow's database as it is now",
        ]


def _schedule(name: str, *, is_suspended: bool = False) -> Manifest:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "main"}]}
    spec = {"schedule": "17 2 31 2 *", "suspend": is_suspended, "jobTemplate": {"spec": {"template": {"spec": pod}}}}
    return api_object("batch/v1", "CronJob", name, namespace=MLFLOW_NAMESPACE, spec=spec)


def _succeed(cluster: Cluster, name: str, *, hours_ago: float) -> None:
    at = f"{NOW - timedelta(hours=hours_ago):%Y-%m-%dT%H:%M:%SZ}"
    cluster.update_status(_schedule(name), {"lastSuccessfulTime": at})

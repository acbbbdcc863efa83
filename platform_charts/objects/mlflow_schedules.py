"""MLflow's CronJobs: the nightly cleanup and backup, and the weekly restore drill.

The cleanup has the server's permissions. Backup and drill have an account of their own, which reads artifacts and writes backups; the
server's may do neither to backups. `make backup` and `make restore-drill` start Jobs from the same CronJobs, also from suspended ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.spec.cluster_names import MLFLOW_BACKUP, MLFLOW_CLEANUP, MLFLOW_NAMESPACE, MLFLOW_RESTORE_DRILL
from infra.spec.manifest import Manifest, api_object
from infra.spec.names import PLATFORM_ACCOUNTS
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.objects.mlflow_pods import (
    Stores,
    as_variables,
    component_labels,
    database_environment,
    pod_container,
    pod_spec,
)

_HOURS = 6 * 3600
_SERVER_ACCOUNT = PLATFORM_ACCOUNTS["mlflow"][0].name
_BACKUP_ACCOUNT = PLATFORM_ACCOUNTS["mlflow-backup"][0].name


@dataclass(frozen=True, kw_only=True)
class _Schedule:
    """A CronJob.

    Attributes:
        name: name of the CronJob.
        when: schedule in UTC.
        arguments: command of the image's program.
        account: service account.
        environment: variables, beside the database's address.
        is_suspended: whether Kubernetes starts it.
        retries: pods after the first that may fail.
    """

    name: str
    when: str
    arguments: tuple[str, ...]
    account: str
    environment: Mapping[str, str]
    is_suspended: bool
    retries: int


def schedules(settings: StackSettings, release: ReleaseManifest, stores: Stores, *, image: str) -> tuple[Manifest, ...]:
    """The CronJobs, and the service account of backup and drill."""
    account = api_object(
        "v1",
        "ServiceAccount",
        _BACKUP_ACCOUNT,
        namespace=MLFLOW_NAMESPACE,
        labels=component_labels(MLFLOW_BACKUP, release),
        automountServiceAccountToken=False,
    )
    common = {**database_environment(settings, stores), "MLFLOW_ARTIFACT_BUCKET": stores.artifact_bucket}
    found = (_cleanup(settings), _backup(settings), _drill(settings))
    return (account, *(_cron_job(one, common, release, image) for one in found))


def _cleanup(settings: StackSettings) -> _Schedule:
    """Deletes for good what users have deleted. The server may run meanwhile."""
    preview = ("--preview",) if settings.mlflow.cleanup == "preview" else ()
    return _Schedule(
        name=MLFLOW_CLEANUP,
        when="17 3 * * *",
        arguments=("cleanup", *preview),
        account=_SERVER_ACCOUNT,
        environment={
            "CLEANUP_OLDER_THAN_DAYS": str(settings.mlflow.delete_after_days),
            "CLEANUP_STORAGE_GIB": str(settings.database.max_allocated_gib),
        },
        is_suspended=settings.mlflow.cleanup == "suspended",
        retries=2,
    )


def _backup(settings: StackSettings) -> _Schedule:
    """Before the cleanup, so that a backup has what the cleanup of the same night deletes."""
    return _Schedule(
        name=MLFLOW_BACKUP,
        when="17 2 * * *",
        arguments=("backup",),
        account=_BACKUP_ACCOUNT,
        environment={},
        is_suspended=settings.backup_schedule == "suspended",
        retries=2,
    )


def _drill(settings: StackSettings) -> _Schedule:
    """On Sunday, after the backup. A drill that finds differences is not repeated: they stay."""
    return _Schedule(
        name=MLFLOW_RESTORE_DRILL,
        when="17 4 * * 0",
        arguments=("restore-drill",),
        account=_BACKUP_ACCOUNT,
        environment={
            "DRILL_ARTIFACTS": str(settings.mlflow.drill_artifacts),
            "DRILL_STORAGE_GIB": str(settings.database.max_allocated_gib),
        },
        is_suspended=settings.restore_drill_schedule == "suspended",
        retries=0,
    )


def _cron_job(schedule: _Schedule, common: Mapping[str, str], release: ReleaseManifest, image: str) -> Manifest:
    variables = as_variables({**common, **schedule.environment})
    command, *arguments = schedule.arguments
    container = pod_container(command, image, variables, memory_mib=1024)
    container["command"] += arguments
    pod = {
        **pod_spec(container, account=schedule.account),
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
    }
    object_labels = component_labels(schedule.name, release)
    job = {
        "backoffLimit": schedule.retries,
        "activeDeadlineSeconds": _HOURS,
        "template": {"metadata": {"labels": object_labels}, "spec": pod},
    }
    spec = {
        "schedule": schedule.when,
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": _HOURS,
        "suspend": schedule.is_suspended,
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 2,
        "jobTemplate": {"metadata": {"labels": object_labels}, "spec": job},
    }
    return api_object("batch/v1", "CronJob", schedule.name, namespace=MLFLOW_NAMESPACE, labels=object_labels, spec=spec)

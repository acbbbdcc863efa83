"""What the cluster says about backups of MLflow: whether one runs, when the last succeeded, and when one was last restored."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from infra.kube.api import KubernetesApi
from infra.spec.cluster_names import MLFLOW_BACKUP, MLFLOW_CLEANUP, MLFLOW_NAMESPACE, MLFLOW_RESTORE_DRILL
from infra.spec.manifest import Manifest, api_object

RECENT = timedelta(hours=24)
"""Largest age of a backup and of a restore drill: an upgrade migrates the schema of the database."""

_NAMES = {MLFLOW_BACKUP: "backup of MLflow", MLFLOW_RESTORE_DRILL: "restore drill"}
_ALL = {**_NAMES, MLFLOW_CLEANUP: "cleanup of MLflow"}


class ClusterBackups:
    """The CronJobs of backup and drill; implements `Backups`.

    Args:
        api: the cluster.
        now: the time.
    """

    def __init__(self, api: KubernetesApi, *, now: datetime) -> None:
        self._api = api
        self._now = now

    def obstacle(self) -> str | None:
        """Why no restored backup is recent enough; None also where there is none by intention, see `gaps`."""
        found = (self._too_old(one, what) for one, what in self._read() if one is not None and not _is_suspended(one))
        return next(filter(None, found), None)

    def gaps(self) -> Iterator[str]:
        """What is not backed up or not restored by intention: schedules that are suspended, or that the release does not have yet."""
        for one, what in self._read():
            if one is None:
                yield f"the stack has no {what} yet, so nothing restores MLflow's database as it is now"
            elif _is_suspended(one):
                yield f"the {what} is suspended by the settings, and was not looked for"

    def running(self) -> str | None:
        """The Job that works on the database now, also one that a user started; None if there is none."""
        names = f"app.kubernetes.io/name in ({','.join(_ALL)})"
        for job in self._api.items("batch/v1", "Job", namespace=MLFLOW_NAMESPACE, labels=names):
            status = job.get("status") or {}
            if status.get("active"):
                what = _ALL[job["metadata"]["labels"]["app.kubernetes.io/name"]]
                return f"Job {job['metadata']['name']}, a {what}, runs since {status.get('startTime', 'just now')}"
        return None

    def _read(self) -> Iterator[tuple[Manifest | None, str]]:
        for name, what in _NAMES.items():
            yield self._api.read(api_object("batch/v1", "CronJob", name, namespace=MLFLOW_NAMESPACE)), what

    def _too_old(self, cron_job: Manifest, what: str) -> str | None:
        last = (cron_job.get("status") or {}).get("lastSuccessfulTime")
        if last is None:
            return f"no {what} has succeeded yet"
        if self._now - datetime.fromisoformat(last).astimezone(UTC) > RECENT:
            hours = RECENT // timedelta(hours=1)
            return f"the last {what} that succeeded is of {last}, more than {hours} hours ago"
        return None


def _is_suspended(cron_job: Manifest) -> bool:
    return bool(cron_job["spec"].get("suspend"))

"""The settings of a run on a cluster, and the name of its job."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from infra.spec.cluster_names import CACHE_PATH, DATASETS_PATH, LUSTRE_PATH, RUNS_PATH
from infra.spec.outputs import StackOutputs, TeamOutput
from platform_charts.jobs.request import timed_name
from training.config.schema import CheckpointSettings, DataSettings, TrainingSettings
from training.errors import SettingsError

_NODE_SECONDS = 1800.0
"""Time for a replacement of a lost node to start its ranks: it launches, boots, and pulls an image of several GB. A new
cluster does not need it: KubeRay starts the driver when all pods are ready."""


def for_cluster(
    settings: TrainingSettings, outputs: StackOutputs, *, team: TeamOutput, now: datetime
) -> TrainingSettings:
    """The settings without those of the local machine.

    Ray starts the ranks on the job's own cluster; the run's folder is on the shared file system, tracking goes to the
    stack's MLflow, metrics to Ray's agents. Restarted ranks wait for a node that replaces a lost one. The run has the
    job's name: a resubmitted job resumes its run.

    A dataset in a bucket is copied to the job's part of the nodes' NVMe disks. Checkpoints are copied to the team's part of the stack's
    bucket, unless the settings say where, or `checkpoint.remote: null`.

    Raises:
        SettingsError: the pods cannot read the dataset's files, or cannot write the cache.
    """
    _check_data(settings.data, team, has_lustre=outputs.storage.lustre_id is not None)
    cache = settings.data.cache or (CACHE_PATH if settings.data.is_in_bucket else None)
    return on_ray_cluster(
        settings,
        name=settings.run.name or job_name(settings, now=now),
        runs=RUNS_PATH,
        cache=None if cache is None else str(cache),
        checkpoint=_checkpoint(settings.checkpoint, outputs, team),
        tracking_uri=settings.tracking.uri or outputs.mlflow_uri,
    )


def on_ray_cluster(
    settings: TrainingSettings,
    *,
    name: str,
    runs: str,
    cache: str | None,
    checkpoint: Mapping[str, Any],
    tracking_uri: str,
) -> TrainingSettings:
    """The settings of a driver on the head of a Ray cluster whose nodes share the folder of the runs.

    Args:
        settings: as they were written.
        name: of the run.
        runs: folder of the runs.
        cache: folder for copies of a dataset on each node; None without.
        checkpoint: settings of the section that change.
        tracking_uri: MLflow.
    """
    changes: Mapping[str, Mapping[str, Any]] = {
        "data": {"cache": cache},
        "run": {"name": name, "directory": runs},
        "scale": {
            "launcher": "ray",
            "address": "auto",
            "nodes": 1,
            "node_rank": 0,
            "rendezvous": None,
            "start_timeout": max(settings.scale.start_timeout, _NODE_SECONDS),
        },
        "checkpoint": checkpoint,
        "tracking": {"uri": tracking_uri},
        "metrics": {"exporter": "ray", "host": "0.0.0.0", "port": 0},  # noqa: S104 - on the cluster's own network
    }
    tree = settings.model_dump(mode="json")
    for section, values in changes.items():
        tree[section].update(values)
    return TrainingSettings.model_validate(tree)


def job_name(settings: TrainingSettings, *, now: datetime) -> str:
    """`<model>-<dataset>-<yyyymmdd-hhmmss>`, like other runs."""
    return timed_name(f"{settings.model.name}-{settings.data.dataset}", now=now)


def _checkpoint(settings: CheckpointSettings, outputs: StackOutputs, team: TeamOutput) -> dict[str, Any]:
    """Where checkpoints are copied; the team's jobs may use no other part of the bucket (`infra/aws/identity.py`)."""
    if "remote" in settings.model_fields_set:
        return {}
    return {"remote": f"s3://{outputs.storage.checkpoint_bucket}/{team.namespace}", "remote_owner": outputs.account}


def _check_data(data: DataSettings, team: TeamOutput, *, has_lustre: bool) -> None:
    if data.cache is not None and not _is_below(data.cache, CACHE_PATH):
        raise SettingsError(
            f"data.cache={data.cache} is on this machine; a job's cache is {CACHE_PATH}, on its nodes' NVMe disks",
            remedy=f"set data.cache={CACHE_PATH}",
        )
    if data.path is None:
        return
    if data.is_in_bucket:
        _check_bucket(str(data.path), team)
        return
    path = data.folder
    name = path.name or "FOLDER"
    if _is_below(path, LUSTRE_PATH) and not has_lustre:
        raise SettingsError(
            f"data.path={path}: this stack has no FSx for Lustre file system, which jobs see in {LUSTRE_PATH}",
            remedy=f"set storage.lustre of the environment and bring the stack up, or use {DATASETS_PATH}/{name}",
        )
    if any(_is_below(path, mounted) for mounted in (DATASETS_PATH, RUNS_PATH, LUSTRE_PATH)):
        return
    raise SettingsError(
        f"data.path={path} is on this machine; a job's pods read datasets under {DATASETS_PATH} and the files of their team "
        f"under {RUNS_PATH}",
        remedy=f"copy it to the stack's file system and set data.path={DATASETS_PATH}/{name}, or {RUNS_PATH}/{name} for "
        "data that only the team may read",
    )


def _check_bucket(path: str, team: TeamOutput) -> None:
    folder = PurePosixPath(path.removeprefix("s3://"))
    if any(folder.is_relative_to(allowed) for allowed in team.dataset_buckets):
        return
    raise SettingsError(
        f"data.path={path}: the jobs of team {team.name} may read {', '.join(team.dataset_buckets) or 'no bucket'}",
        remedy="add it to teams[].dataset_buckets of the environment, and bring the stack up",
    )


def _is_below(path: Path, mounted: str) -> bool:
    folder = PurePosixPath(path.as_posix())
    return ".." not in folder.parts and folder.is_relative_to(mounted)

"""The settings of a run on a cluster, and the name of its job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from infra.spec.cluster_names import DATASETS_PATH, RUNS_PATH
from infra.spec.outputs import StackOutputs
from platform_charts.jobs.request import LONGEST_JOB_NAME
from training.config.schema import TrainingSettings
from training.errors import SettingsError

_NODE_SECONDS = 1800.0
"""Time for a replacement of a lost node to start its ranks: it launches, boots, and pulls an image of several GB. A new
cluster does not need it: KubeRay starts the driver when all pods are ready."""

_STAMP = "-%Y%m%d-%H%M%S"


def for_cluster(settings: TrainingSettings, outputs: StackOutputs, *, now: datetime) -> TrainingSettings:
    """The settings without those of the local machine.

    Ray starts the ranks on the job's own cluster; the run's folder is on the shared file system, tracking goes to the
    stack's MLflow, metrics to Ray's agents. Restarted ranks wait for a node that replaces a lost one. The run has the
    job's name: a resubmitted job resumes its run.

    Raises:
        SettingsError: the pods cannot read the dataset's files.
    """
    _check_data(settings)
    changes: Mapping[str, Mapping[str, Any]] = {
        "run": {"name": settings.run.name or job_name(settings, now=now), "directory": RUNS_PATH},
        "scale": {
            "launcher": "ray",
            "address": "auto",
            "nodes": 1,
            "node_rank": 0,
            "rendezvous": None,
            "start_timeout": max(settings.scale.start_timeout, _NODE_SECONDS),
        },
        "tracking": {"uri": settings.tracking.uri or outputs.mlflow_uri},
        "metrics": {"exporter": "ray", "host": "0.0.0.0", "port": 0},  # noqa: S104 - a pod, behind network policies
    }
    tree = settings.model_dump(mode="json")
    for section, values in changes.items():
        tree[section].update(values)
    return TrainingSettings.model_validate(tree)


def job_name(settings: TrainingSettings, *, now: datetime) -> str:
    """`<model>-<dataset>-<yyyymmdd-hhmmss>`, like other runs, reduced to the characters of a job's name."""
    slug = re.sub(r"[^a-z0-9]+", "-", f"{settings.model.name}-{settings.data.dataset}".lower()).strip("-")
    slug = re.sub(r"^[^a-z]+", "", slug) or "run"
    stamp = f"{now:{_STAMP}}"
    return slug[: LONGEST_JOB_NAME - len(stamp)].rstrip("-") + stamp


def _check_data(settings: TrainingSettings) -> None:
    path = settings.data.path
    if path is None:
        return
    folder = PurePosixPath(Path(path).as_posix())
    if ".." not in folder.parts and any(folder.is_relative_to(mounted) for mounted in (DATASETS_PATH, RUNS_PATH)):
        return
    name = folder.name or "FOLDER"
    raise SettingsError(
        f"data.path={path} is on this machine; a job's pods read datasets under {DATASETS_PATH} and the files of their team "
        f"under {RUNS_PATH}",
        remedy=f"copy it to the stack's file system and set data.path={DATASETS_PATH}/{name}, or {RUNS_PATH}/{name} for "
        "data that only the team may read",
    )

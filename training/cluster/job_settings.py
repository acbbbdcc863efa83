"""The settings of a run as a cluster runs it, and the request for its job."""

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
"""Time a lost node's successor may take until its ranks start: AWS finds it, it boots, and pulls an image of some GB. The
ranks of a new cluster need none of it: KubeRay begins the driver when all pods are there."""

_STAMP = "-%Y%m%d-%H%M%S"


def for_cluster(settings: TrainingSettings, outputs: StackOutputs, *, now: datetime) -> TrainingSettings:
    """The settings with everything replaced that belongs to the machine a run is started on.

    Ray starts the ranks, on the job's own cluster; the run lies on the shared file system, tracking goes to the stack's
    MLflow, metrics to Ray's agents. A group of ranks that is started again waits for a node in the place of a lost one. The
    run has the job's name: a job that is submitted again goes on with its run.

    Raises:
        SettingsError: the dataset's files cannot be seen by the pods.
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
    """`<model>-<dataset>-<yyyymmdd-hhmmss>`, as a run is named elsewhere, of what the name of a job may hold."""
    slug = re.sub(r"[^a-z0-9]+", "-", f"{settings.model.name}-{settings.data.dataset}".lower()).strip("-")
    slug = re.sub(r"^[^a-z]+", "", slug) or "run"
    stamp = f"{now:{_STAMP}}"
    return slug[: LONGEST_JOB_NAME - len(stamp)].rstrip("-") + stamp


def _check_data(settings: TrainingSettings) -> None:
    path = settings.data.path
    if path is None:
        return
    place = PurePosixPath(Path(path).as_posix())
    if ".." not in place.parts and any(place.is_relative_to(seen) for seen in (DATASETS_PATH, RUNS_PATH)):
        return
    name = place.name or "FOLDER"
    raise SettingsError(
        f"data.path={path} lies on this machine, a job's pods see the datasets under {DATASETS_PATH} and what is their "
        f"team's own under {RUNS_PATH}",
        remedy=f"copy it to the stack's file system and set data.path={DATASETS_PATH}/{name}, or {RUNS_PATH}/{name} for "
        "data that only the team may see",
    )

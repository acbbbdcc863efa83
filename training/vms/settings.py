"""The settings of a run on a cluster of virtual machines."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from training.cluster.job_settings import job_name, on_ray_cluster
from training.config.schema import CheckpointSettings, DataSettings, TrainingSettings
from training.errors import SettingsError
from training.vms.place import RunPlace


def for_machines(settings: TrainingSettings, place: RunPlace, *, now: datetime) -> TrainingSettings:
    """The settings without those of the local machine; see `training.cluster.job_settings.for_cluster`.

    Raises:
        SettingsError: the machines do not have the dataset, or no folder for copies of it.
    """
    _check_data(settings.data, place)
    return on_ray_cluster(
        settings,
        name=settings.run.name or job_name(settings, now=now),
        runs=place.runs,
        cache=None if settings.data.cache is None else str(settings.data.cache),
        checkpoint=_checkpoint(settings.checkpoint, place),
        tracking_uri=settings.tracking.uri or place.tracking_uri,
    )


def _checkpoint(settings: CheckpointSettings, place: RunPlace) -> Mapping[str, Any]:
    if "remote" in settings.model_fields_set or place.checkpoint_remote is None:
        return {}
    return {"remote": place.checkpoint_remote, "remote_owner": place.checkpoint_owner}


def _check_data(data: DataSettings, place: RunPlace) -> None:
    if data.cache is not None and not data.cache.is_absolute():
        raise SettingsError(
            f"data.cache={data.cache} must be an absolute path of the machines", remedy="set data.cache=/scratch"
        )
    if data.path is None:
        return
    if data.is_in_bucket:
        if data.cache is None:
            raise SettingsError(
                f"data.path={data.path} is in a bucket, and data.cache, the folder for its copy on each machine, is not set",
                remedy="set data.cache=/scratch, a folder that the SSH user may write",
            )
        return
    if not place.is_data(Path(data.path)):
        known = " or ".join(place.data_folders) or "an absolute path that all machines have"
        raise SettingsError(
            f"data.path={data.path} is on this machine; those of the cluster read {known}",
            remedy="copy the dataset there, and name the folder as the machines see it",
        )

"""A job and its machines for Anyscale, from the stack and the settings that also make a RayJob.

Fields and values are those of `JobConfig` and `ComputeConfig` of the package `anyscale`, whose models validate them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.spec.cluster_names import TRAINER_PATH
from infra.spec.outputs import TeamOutput
from platform_charts.jobs.request import Target
from training.vms.aws import bucket_of, gpu_group, head_type, reachable_mlflow
from training.vms.clusters import NodeRange
from training.vms.place import RunPlace, entrypoint, local_tracking

_RUNS = "/mnt/shared_storage/runs"
"""Folder of the runs. Anyscale mounts `/mnt/shared_storage` on all machines of a cloud (Anyscale's documentation, "Shared storage")."""


@dataclass(frozen=True, kw_only=True)
class AnyscaleJob:
    """A job.

    Attributes:
        name: of the job and its run.
        cloud: the Anyscale cloud.
        workers: how many GPU workers.
        group: GPU group of the stack whose instance type the workers have; None: the only one.
        is_spot: the workers are spot instances, on demand where there is no spot capacity.
        has_code: the working directory has an archive of code of the user's own.
    """

    name: str
    cloud: str
    workers: NodeRange
    group: str | None
    is_spot: bool
    has_code: bool


def place_of(target: Target, team: TeamOutput, *, tracking_uri: str | None) -> RunPlace:
    """Where the job keeps its run."""
    outputs = target.outputs
    return RunPlace(
        platform=outputs.platform,
        home="~/.rtp/anyscale",
        token_file="",
        runs=_RUNS,
        checkpoint_remote=bucket_of(outputs, team),
        checkpoint_owner=outputs.account,
        tracking_uri=tracking_uri or reachable_mlflow(outputs) or local_tracking(_RUNS),
    )


def render_compute(job: AnyscaleJob, target: Target) -> dict[str, Any]:
    """The `ComputeConfig`. The head runs no rank.

    Raises:
        SettingsError: the stack has no such GPU group.
        RefusedError: the stack does not say the head's type, or sells the group's nodes in another way.
    """
    outputs = target.outputs
    group = gpu_group(job.group, outputs)
    is_spot = job.is_spot or group.capacity_type == "SPOT"
    return {
        "cloud": job.cloud,
        "head_node": {"instance_type": head_type(outputs), "resources": {"CPU": 0}},
        "worker_nodes": [
            {
                "name": group.name,
                "instance_type": target.catalog.find_instance(group.instance_type).name,
                "min_nodes": job.workers.fewest,
                "max_nodes": job.workers.most,
                "market_type": "PREFER_SPOT" if is_spot else "ON_DEMAND",
            }
        ],
    }


def render_job(job: AnyscaleJob, target: Target, team: TeamOutput, *, compute: Mapping[str, Any]) -> dict[str, Any]:
    """The `JobConfig`, with its machines, in the release's trainer image.

    A failed driver is retried once, as on Kubernetes, and resumes its run.
    """
    outputs = target.outputs
    image = target.release.images["trainer"]
    return {
        "name": job.name,
        "entrypoint": entrypoint("python", TRAINER_PATH, has_code=job.has_code),
        "image_uri": image.reference_in(outputs.registries["trainer"]),
        "compute_config": dict(compute),
        "working_dir": ".",
        "max_retries": 1,
        "tags": {"stack": outputs.environment, "team": team.name},
    }

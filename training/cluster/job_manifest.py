"""Converts settings to a job request, and a job's objects on the cluster back to its settings and options."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from infra.spec.cluster_names import PRIORITY_PREFIX, Priority
from infra.spec.manifest import Manifest
from infra.spec.node_labels import GROUP_LABEL
from platform_charts.jobs.pods import SETTINGS_FILE
from platform_charts.jobs.rayjob import KEEP_ANNOTATION, PRIORITY_LABEL
from platform_charts.jobs.request import JobRequest
from training.config.load import render
from training.config.schema import TrainingSettings


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of a job in addition to its settings; None is the platform's default.

    Attributes:
        group: the GPU node group.
        priority: its priority class in the queue.
        deadline_hours: time limit from admission.
        restarts: how often it is retried on a new cluster; see `JobRequest`.
        keep_days: retention time after its end.
    """

    group: str | None = None
    priority: Priority | None = None
    deadline_hours: float | None = None
    restarts: int | None = None
    keep_days: float | None = None

    def or_else(self, defaults: JobOptions) -> JobOptions:
        """These options, with `defaults` for those that are None."""
        return JobOptions(**{**defaults.given(), **self.given()})

    def given(self) -> dict[str, Any]:
        """The options that are not None, by name."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def request_of(settings: TrainingSettings, *, team: str, options: JobOptions) -> JobRequest:
    """The request for a training job; the job has the run's name.

    Args:
        settings: as `job_settings.for_cluster` makes them.
        team: name of the team.
        options: the options in addition to them.

    Raises:
        SettingsError: of the stack; the name is not valid for a job, or no cluster can meet an option.
    """
    assert settings.run.name is not None, "for_cluster names the run"
    return JobRequest(
        name=settings.run.name,
        kind="train",
        team=team,
        settings_yaml=render(settings),
        workers=settings.scale.workers,
        gpus_per_worker=int(settings.scale.gpu),
        cpus_per_worker=_cpus(settings),
        **options.given(),
    )


def _cpus(settings: TrainingSettings) -> int:
    """Cores of a rank. A GPU's share of cores includes those of the loaders; without a GPU they are requested here."""
    scale = settings.scale
    return scale.cpus_per_worker if scale.gpu else scale.cpus_per_worker + settings.data.loader_workers


def options_of(job: Manifest) -> JobOptions:
    """The options of a job on the cluster."""
    spec = job["spec"]
    (workers,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    keep_days = job["metadata"].get("annotations", {}).get(KEEP_ANNOTATION)
    has_gpus = _gpus_of(workers["template"]) > 0
    return JobOptions(
        group=workers["template"]["spec"]["nodeSelector"].get(GROUP_LABEL) if has_gpus else None,
        priority=job["metadata"]["labels"][PRIORITY_LABEL].removeprefix(PRIORITY_PREFIX),
        deadline_hours=spec["activeDeadlineSeconds"] / 3600,
        restarts=spec["backoffLimit"],
        keep_days=None if keep_days is None else float(keep_days),
    )


def image_of(job: Manifest) -> str:
    """The image that the job's pods pull."""
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    return str(head["containers"][0]["image"])


def settings_name(job: Manifest) -> str:
    """Name of the ConfigMap with the job's settings."""
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    (name,) = [volume["configMap"]["name"] for volume in head["volumes"] if "configMap" in volume]
    return str(name)


def settings_text(config_map: Manifest) -> str:
    """The settings in a job's ConfigMap, as YAML."""
    return str(config_map["data"][SETTINGS_FILE])


def worker_pods(job: Manifest) -> int:
    """Number of the job's worker pods."""
    return sum(group["replicas"] for group in job["spec"]["rayClusterSpec"]["workerGroupSpecs"])


def gpus(job: Manifest) -> int:
    """GPUs of all the job's pods."""
    groups = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    return sum(group["replicas"] * _gpus_of(group["template"]) for group in groups)


def describe_size(job: Manifest) -> str:
    """The size of a job, e.g. `2 worker pods with 16 GPUs`."""
    pods, count = worker_pods(job), gpus(job)
    return f"{pods} worker pod{'s' * (pods != 1)}" + (f" with {count} GPU{'s' * (count != 1)}" if count else " on CPUs")


def _gpus_of(template: Manifest) -> int:
    limits = (container.get("resources", {}).get("limits", {}) for container in template["spec"]["containers"])
    return sum(int(one.get("nvidia.com/gpu", 0)) for one in limits)

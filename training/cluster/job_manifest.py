"""Converts settings to a job request, and a job's objects on the cluster back to its settings and options."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from infra.spec.cluster_names import PRIORITY_PREFIX, Priority
from infra.spec.manifest import Manifest
from infra.spec.node_labels import GPU_MODEL_LABEL, GPU_RESOURCE, GROUP_LABEL, SPOT_TAINT
from platform_charts.jobs.cluster import WORKER_GROUP
from platform_charts.jobs.code import PackedCode, code_of
from platform_charts.jobs.pods import SETTINGS_FILE
from platform_charts.jobs.rayjob import IMAGE_ANNOTATION, KEEP_ANNOTATION, PRIORITY_LABEL
from platform_charts.jobs.request import JobRequest
from training.config.load import render
from training.config.resize import fitting_workers
from training.config.schema import TrainingSettings

_CHOICE = ("group", "gpu_model", "spot")


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of a job in addition to its settings; None is the platform's default.

    Attributes:
        group: the GPU node group, or several; see `JobRequest`.
        gpu_model: a GPU model, instead of a group; see `JobRequest`.
        spot: with a GPU model, also on spot nodes.
        priority: its priority class in the queue.
        deadline_hours: time limit from admission.
        restarts: how often it is retried on a new cluster; see `JobRequest`.
        keep_days: retention time after its end.
        image: image of its pods, derived from the release's; see `JobRequest`.
    """

    group: str | None = None
    gpu_model: str | None = None
    spot: bool | None = None
    priority: Priority | None = None
    deadline_hours: float | None = None
    restarts: int | None = None
    keep_days: float | None = None
    image: str | None = None

    def or_else(self, defaults: JobOptions) -> JobOptions:
        """These options, with `defaults` for those that are None. Groups are chosen by these options, or by the defaults."""
        kept = defaults.given()
        if self.group is not None or self.gpu_model is not None:
            kept = {name: value for name, value in kept.items() if name not in _CHOICE}
        return JobOptions(**{**kept, **self.given()})

    def given(self) -> dict[str, Any]:
        """The options that are not None, by name."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def request_of(
    settings: TrainingSettings, *, team: str, options: JobOptions, code: PackedCode | None = None
) -> JobRequest:
    """The request for a training job; the job has the run's name.

    Args:
        settings: as `job_settings.for_cluster` makes them.
        team: name of the team.
        options: the options in addition to them.
        code: code of the user's own.

    Raises:
        SettingsError: of the stack; the name is not valid for a job, or no cluster can meet an option.
    """
    assert settings.run.name is not None, "for_cluster names the run"
    # A GPU's share of cores includes those of the loaders; without a GPU they are requested here.
    sizes = _sizes(settings)
    loaders = 0 if settings.scale.gpu else settings.data.loader_workers
    return JobRequest(
        name=settings.run.name,
        kind="train",
        team=team,
        settings_yaml=render(settings),
        workers=sizes[-1] if sizes else settings.scale.workers,
        sizes=sizes,
        gpus_per_worker=int(settings.scale.gpu),
        cpus_per_worker=settings.scale.cpus_per_worker + loaders,
        loader_cpus=loaders,
        needs_cache=settings.data.cache is not None,
        needs_float8=settings.precision.mode == "fp8",
        code=code,
        **options.given(),
    )


def _sizes(settings: TrainingSettings) -> tuple[int, ...]:
    """The numbers of ranks that an elastic run can have; none if that is only one, or the run is not elastic."""
    scale = settings.scale
    if not scale.is_elastic:
        return ()
    found = tuple(number for number in fitting_workers(settings) if (scale.min_workers or 1) <= number <= scale.workers)
    return found if len(found) > 1 else ()


def options_of(job: Manifest) -> JobOptions:
    """The options of a job on the cluster."""
    spec = job["spec"]
    (workers,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    annotations = job["metadata"].get("annotations", {})
    keep_days = annotations.get(KEEP_ANNOTATION)
    pod, model = workers["template"]["spec"], job["metadata"]["labels"].get(GPU_MODEL_LABEL)
    # Kueue writes the group that it chose into an admitted job; a job that named a model keeps its choice.
    is_in_group = _gpus_of(workers["template"]) > 0 and model is None
    tolerated = {one["key"] for one in pod.get("tolerations", ())}
    return JobOptions(
        group=_named_groups(pod) if is_in_group else None,
        gpu_model=model,
        spot=None if model is None else SPOT_TAINT.key in tolerated,
        priority=job["metadata"]["labels"][PRIORITY_LABEL].removeprefix(PRIORITY_PREFIX),
        deadline_hours=spec["activeDeadlineSeconds"] / 3600,
        restarts=spec["backoffLimit"],
        keep_days=None if keep_days is None else float(keep_days),
        image=annotations.get(IMAGE_ANNOTATION),
    )


def _named_groups(pod: Manifest) -> str:
    """The groups that a job named: several are in an affinity, to which Kueue adds a selector of the one that it chose."""
    required = pod.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = [one for term in required.get("nodeSelectorTerms", ()) for one in term.get("matchExpressions", ())]
    listed = [name for one in terms if one["key"] == GROUP_LABEL for name in one["values"]]
    return ",".join(listed) or str(pod["nodeSelector"][GROUP_LABEL])


def image_of(job: Manifest) -> str:
    """The image that the job's pods pull."""
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    return str(head["containers"][0]["image"])


def settings_name(job: Manifest) -> str:
    """Name of the ConfigMap with the job's settings."""
    (name,) = _mounted_maps(job)
    return name


def config_maps(job: Manifest) -> tuple[str, ...]:
    """Names of all ConfigMaps of the job: with its settings, if it has any, and with the parts of its code."""
    code = code_of(job)
    return (*_mounted_maps(job), *(code.config_maps if code else ()))


def _mounted_maps(job: Manifest) -> list[str]:
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    return [str(volume["configMap"]["name"]) for volume in head["volumes"] if "configMap" in volume]


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


def ranks_of_pod(job: Manifest) -> int:
    """Number of ranks of each of the job's worker pods."""
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    return _gpus_of(group["template"]) or 1


def describe_size(job: Manifest) -> str:
    """The size of a job, e.g. `2 worker pods with 16 GPUs`; that of an elastic one with what it may grow to."""
    pods, count = worker_pods(job), gpus(job)
    text = f"{pods} worker pod{'s' * (pods != 1)}" + (f" with {count} GPU{'s' * (count != 1)}" if count else " on CPUs")
    most = sum(group["maxReplicas"] for group in job["spec"]["rayClusterSpec"]["workerGroupSpecs"])
    return text if most == pods else f"{text}, at most {most} worker pods"


def admitted_group(workload: Manifest | None) -> str:
    """The node group that Kueue assigned to a job's workers; empty while it is not admitted."""
    admission = ((workload or {}).get("status") or {}).get("admission") or {}
    flavors = (one.get("flavors", {}) for one in admission.get("podSetAssignments", ()) if one["name"] == WORKER_GROUP)
    return next((str(group) for assigned in flavors for group in assigned.values()), "")


def _gpus_of(template: Manifest) -> int:
    limits = (container.get("resources", {}).get("limits", {}) for container in template["spec"]["containers"])
    return sum(int(one.get(GPU_RESOURCE, 0)) for one in limits)

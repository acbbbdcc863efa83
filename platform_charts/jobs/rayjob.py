"""A job that runs once, as KubeRay's RayJob."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from infra.spec.cluster_names import (
    ELASTIC_ANNOTATION,
    ELASTIC_LABEL,
    LAST_SCRAPES_SECONDS,
    RUNS_PATH,
    SEARCHES_PATH,
    SIZES_ANNOTATION,
    priority_class,
)
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest, api_object
from infra.spec.node_labels import GPU_MODEL_LABEL, LABEL_PREFIX
from platform_charts.jobs.cluster import ray_cluster_spec
from platform_charts.jobs.code import DeliveredCode, SharedCode, part_maps
from platform_charts.jobs.elastic_size import place_any_job
from platform_charts.jobs.placement import Placement, find_team
from platform_charts.jobs.pods import SETTINGS_FILE, SETTINGS_FOLDER, Workspace, submitter
from platform_charts.jobs.request import DERIVED_IMAGE_REMEDY, JobKind, JobRequest, Target

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
KIND_LABEL = f"{LABEL_PREFIX}/kind"
"""Label of a RayJob that is a search: `search`. Other jobs have none."""

_SEARCH = "search"

KEEP_ANNOTATION = f"{LABEL_PREFIX}/keep-days"
"""Annotation of a RayJob: days for which it is kept after its end."""

IMAGE_ANNOTATION = f"{LABEL_PREFIX}/image"
"""Annotation of a RayJob that was submitted with an image of its own: its reference."""

ENDED = frozenset({"Complete", "Failed", "ValidationFailed"})
"""`jobDeploymentStatus` of a RayJob that KubeRay no longer acts on (ray-operator/apis/ray/v1/rayjob_types.go)."""

_SETTINGS = f"{SETTINGS_FOLDER}/{SETTINGS_FILE}"
COMMAND_PROGRAM = ("python", "-m", "training", "run-on-nodes")
"""Program of a job of kind `run`; its options say the rest, so that such a job needs no settings."""

_PROGRAMS: Mapping[JobKind, tuple[str, ...]] = {
    "train": ("python", "-m", "training", "train", "--config", _SETTINGS),
    "search": ("python", "-m", "tune", "search", "--config", _SETTINGS),
    "benchmark": ("python", "-m", "observability.benchmarks"),
    "run": COMMAND_PROGRAM,
}

_SUBMITTER_RETRIES = 10
"""The submitter's pod follows the log while the job runs; each broken connection uses one retry, and without one left the
job fails. A new pod finds the job by its id and follows on, or submits it again to a head that does not know it."""


def render_job(request: JobRequest, target: Target) -> tuple[Manifest, ...]:
    """The ConfigMap with the settings, those with the parts of the code, and last the RayJob that mounts them.

    A job of kind `run` has no settings: its entrypoint says all.

    The RayJob leaves `suspend` out: Kueue's webhook sets it at creation, and a second apply must not stop an admitted job.

    Raises:
        SettingsError: the request names a team or group that the stack does not have.
        RefusedError: no group is large enough; the message has the numbers. Or the image is in another repository.
    """
    team, placement = find_team(request.team, target), place_any_job(request, target)
    run = (request.run or request.name) if request.kind == "run" or request.resumes else None
    settings_name = f"{request.name}-settings" if request.kind != "run" else None
    parts = part_maps(request.code, f"{request.name}-code") if request.code else {}
    delivered = DeliveredCode(config_maps=tuple(parts), identity=request.code.identity) if request.code else None
    workspace = Workspace(
        name=request.name,
        team=team,
        priority=request.priority,
        target=target,
        settings=settings_name,
        run_folder=None if run is None else f"{SEARCHES_PATH if request.kind == 'search' else RUNS_PATH}/{run}",
        image=_image(request, target),
        code=SharedCode(folder=f"{request.name}/code") if request.kind == "session" else delivered,
        takes_requests=request.kind == "train" and request.command is None,
    )
    common: Manifest = {"namespace": team.namespace, "labels": workspace.labels, "immutable": True}
    settings = {SETTINGS_FILE: request.settings_yaml}
    config_maps = [api_object("v1", "ConfigMap", settings_name, **common, data=settings)] if settings_name else []
    config_maps += [api_object("v1", "ConfigMap", name, **common, binaryData=data) for name, data in parts.items()]
    job = api_object(
        "ray.io/v1",
        "RayJob",
        request.name,
        namespace=team.namespace,
        labels={
            **workspace.labels,
            QUEUE_LABEL: team.queue,
            PRIORITY_LABEL: priority_class(request.priority),
            **({KIND_LABEL: _SEARCH} if request.kind == "search" else {}),
            **({} if request.gpu_model is None else {GPU_MODEL_LABEL: request.gpu_model}),
            **({ELASTIC_LABEL: "true"} if placement.sizes else {}),
        },
        annotations={
            KEEP_ANNOTATION: f"{request.keep_days:g}",
            **({} if request.image is None else {IMAGE_ANNOTATION: request.image}),
            **_elastic(placement),
        },
        spec={
            "entrypoint": shlex.join(_command(request, run, delivered, placement)),
            **_lifetime(request),
            "submissionMode": "K8sJobMode",
            "submitterConfig": {"backoffLimit": _SUBMITTER_RETRIES},
            "submitterPodTemplate": submitter(workspace),
            "rayClusterSpec": ray_cluster_spec(workspace, placement, driver_memory_mib=request.driver_memory_mib),
        },
    )
    return *config_maps, job


def _image(request: JobRequest, target: Target) -> str:
    """The image of all pods. Nodes may pull from this account, and the registry scans what is in the stack's repositories."""
    name = "session" if request.kind == "session" else "trainer"
    repository = target.outputs.registries[name]
    if request.image is None:
        return target.release.images[name].reference_in(repository)
    if request.image.partition("@")[0] != repository:
        raise RefusedError(
            f"image={request.image} is not in {repository}, the repository of the stack's trainer images",
            remedy=DERIVED_IMAGE_REMEDY,
        )
    return request.image


def _elastic(placement: Placement) -> dict[str, str]:
    """What makes a job elastic for Kueue, and tells the sizer the numbers of pods that its run can use."""
    if not placement.sizes:
        return {}
    return {ELASTIC_ANNOTATION: "true", SIZES_ANNOTATION: ",".join(map(str, placement.sizes))}


def is_command_job(job: Manifest) -> bool:
    """Whether a RayJob is of kind `run`."""
    return str(job["spec"].get("entrypoint", "")).startswith(f"{shlex.join(COMMAND_PROGRAM)} ")


def is_search(job: Manifest) -> bool:
    """Whether a RayJob is of kind `search`."""
    return bool(job["metadata"].get("labels", {}).get(KIND_LABEL) == _SEARCH)


def _command(request: JobRequest, run: str | None, code: DeliveredCode | None, placement: Placement) -> tuple[str, ...]:
    """The entrypoint. A run or search is named, so that a restart resumes it instead of starting another one, and keeps its code."""
    command = request.command or _PROGRAMS[request.kind]
    if request.shell_command is not None:
        pods = {"nodes": placement.pods, "gpus": placement.gpus, "cpus": placement.share.cpus}
        again = ("--resumes",) if request.retries else ()
        options = (f"--{key}={value}" for key, value in pods.items())
        command = (*command, *options, *again, f"--cmd={request.shell_command}")
    return command if run is None else (*command, *(code.options if code else ()), "--name", run)


def _lifetime(request: JobRequest) -> Manifest:
    """Deadlines, retries, and what is deleted after the job.

    Kueue 0.19 rejects a job whose nodes outlive it (rayjob_webhook.go), and KubeRay 1.7 rejects deletion rules beside
    `shutdownAfterJobFinishes` (validation.go); its time to live is the same for cluster and RayJob. So the cluster is
    deleted at once, and the RayJob, with its status and its submitter's log, by `training.cluster.retention`.
    """
    return {
        "activeDeadlineSeconds": round(request.deadline_hours * 3600),
        "preRunningDeadlineSeconds": round(request.start_hours * 3600),
        "backoffLimit": request.retries,
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": LAST_SCRAPES_SECONDS,
    }

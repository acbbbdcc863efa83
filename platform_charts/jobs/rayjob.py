"""A job that runs once, as KubeRay's RayJob."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from infra.spec.cluster_names import priority_class
from infra.spec.manifest import Manifest, api_object
from infra.spec.node_labels import LABEL_PREFIX
from platform_charts.jobs.cluster import Scaling, ray_cluster_spec
from platform_charts.jobs.placement import find_team, place_job
from platform_charts.jobs.pods import SETTINGS_FILE, SETTINGS_FOLDER, Workspace, submitter
from platform_charts.jobs.request import JobKind, JobRequest, Target

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
KEEP_ANNOTATION = f"{LABEL_PREFIX}/keep-days"
"""Annotation of a RayJob: days for which it is kept after its end."""

_SETTINGS = f"{SETTINGS_FOLDER}/{SETTINGS_FILE}"
_PROGRAMS: Mapping[JobKind, tuple[str, ...]] = {
    "train": ("python", "-m", "training", "train", "--config", _SETTINGS),
    "benchmark": ("python", "-m", "observability.benchmarks"),
}

_LAST_SCRAPES_SECONDS = 60
"""Time for which the pods of a finished job stay: Prometheus scrapes their last values twice."""

_SUBMITTER_RETRIES = 10
"""The submitter's pod follows the log while the job runs; each broken connection uses one retry, and without one left the
job fails. A new pod finds the job by its id and follows on."""


def render_job(request: JobRequest, target: Target) -> tuple[Manifest, ...]:
    """The ConfigMap with the settings, and the RayJob that mounts it.

    The RayJob leaves `suspend` out: Kueue's webhook sets it at creation, and a second apply must not stop an admitted job.

    Raises:
        SettingsError: the request names a team or group that the stack does not have.
        RefusedError: no group is large enough; the message has the numbers.
    """
    team, placement = find_team(request.team, target), place_job(request, target)
    run = (request.run or request.name) if request.kind == "train" and request.command is None else None
    workspace = Workspace(
        name=request.name,
        team=team,
        priority=request.priority,
        target=target,
        settings=f"{request.name}-settings",
        run=run,
    )
    scaling = Scaling(smallest=placement.pods, largest=placement.pods, idle_seconds=None)
    settings = api_object(
        "v1",
        "ConfigMap",
        f"{request.name}-settings",
        namespace=team.namespace,
        labels=workspace.labels,
        immutable=True,
        data={SETTINGS_FILE: request.settings_yaml},
    )
    job = api_object(
        "ray.io/v1",
        "RayJob",
        request.name,
        namespace=team.namespace,
        labels={
            **workspace.labels,
            QUEUE_LABEL: team.queue,
            PRIORITY_LABEL: priority_class(request.priority),
        },
        annotations={KEEP_ANNOTATION: f"{request.keep_days:g}"},
        spec={
            "entrypoint": shlex.join(_command(request, run)),
            **_lifetime(request),
            "submissionMode": "K8sJobMode",
            "submitterConfig": {"backoffLimit": _SUBMITTER_RETRIES},
            "submitterPodTemplate": submitter(workspace),
            "rayClusterSpec": ray_cluster_spec(workspace, placement, scaling),
        },
    )
    return settings, job


def _command(request: JobRequest, run: str | None) -> tuple[str, ...]:
    """The entrypoint. A run is named, so that a restart resumes it instead of starting another one."""
    command = request.command or _PROGRAMS[request.kind]
    return command if run is None else (*command, "--name", run)


def _lifetime(request: JobRequest) -> Manifest:
    """Deadlines, retries, and what is deleted after the job.

    Kueue 0.19 rejects a job whose nodes outlive it (rayjob_webhook.go), and KubeRay 1.7 rejects deletion rules beside
    `shutdownAfterJobFinishes` (validation.go); its time to live is the same for cluster and RayJob. So the cluster is
    deleted at once, and the RayJob, with its status and its submitter's log, by `training.cluster.retention`.
    """
    return {
        "activeDeadlineSeconds": round(request.deadline_hours * 3600),
        "preRunningDeadlineSeconds": round(request.start_hours * 3600),
        "backoffLimit": request.restarts,
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": _LAST_SCRAPES_SECONDS,
    }

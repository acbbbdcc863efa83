"""A job that runs at the times of a schedule, as a Kubernetes CronJob whose Jobs submit RayJobs.

KubeRay 1.6 has RayCronJobs behind an alpha feature gate. A RayCronJob does not suit: its RayJobs get no labels, so no queue and no
priority; they all have the same entrypoint, so every one would resume the first one's run; and it has neither a concurrency rule,
nor a history limit, nor a time zone (raycronjob_types.go, raycronjob_controller.go, constructRayJob).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from infra.spec.cluster_names import LONGEST_JOB_NAME, SCHEDULER_ACCOUNT, priority_class
from infra.spec.errors import SettingsError
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, api_object, labels
from infra.spec.node_labels import LABEL_PREFIX
from platform_charts.jobs.code import PackedCode, part_maps, parts_volume
from platform_charts.jobs.placement import find_team
from platform_charts.jobs.rayjob import PRIORITY_LABEL, QUEUE_LABEL, render_job
from platform_charts.jobs.request import JobRequest, Target
from platform_charts.jobs.scheduling import head_nodes

SCHEDULE_LABEL = f"{LABEL_PREFIX}/schedule"
"""Label of a schedule's objects and of the RayJobs that it submits: its name."""

Concurrency = Literal["forbid", "replace", "allow"]
"""What happens while an earlier occurrence has not ended: skip the new one, stop the earlier one, or run both."""

_NO_TIME = "-00000000-0000"
"""Stands for the time of an occurrence in the template; as long as a time, so that the names' limits are checked at once."""

LONGEST_SCHEDULE_NAME = LONGEST_JOB_NAME - len(_NO_TIME)

_LARGEST_HISTORY = 100
_TEMPLATE, _FOLDER = "objects.json", "/etc/schedule"
_CODE_FOLDER = "/etc/schedule-code"
_KUBERNETES_CONCURRENCY: Mapping[Concurrency, str] = {"forbid": "Forbid", "replace": "Replace", "allow": "Allow"}

_LATEST_START_SECONDS = 3600
"""A start that is later than this, e.g. because the control plane was down, is left out."""

_SUBMISSION_SECONDS = 600
_SUBMISSION_RETRIES = 4


@dataclass(frozen=True, kw_only=True)
class ScheduleRequest:
    """A schedule.

    Attributes:
        name: its name; each occurrence is a job and a run NAME-YYYYMMDD-HHMM, in UTC.
        job: the job of every occurrence, with the name `template_name(name)`.
        cron: times as five fields or a macro of cron, e.g. `0 2 * * *`.
        time_zone: zone of these times, a name of the tz database.
        concurrency: the rule for an occurrence that is due while an earlier one has not ended.
        history: ended occurrences that are kept.
        is_suspended: whether no occurrence starts.
    """

    name: str
    job: JobRequest
    cron: str
    time_zone: str = "Etc/UTC"
    concurrency: Concurrency = "forbid"
    history: int = 10
    is_suspended: bool = False

    def __post_init__(self) -> None:
        """Refuse what no occurrence could be named by.

        Raises:
            SettingsError: names the field, its value and its rule.
        """
        assert self.job.name == template_name(self.name), "the template has the placeholder's name"
        if not 1 <= self.history <= _LARGEST_HISTORY:
            raise SettingsError(f"history={self.history} must be between 1 and {_LARGEST_HISTORY}")


def template_name(schedule: str) -> str:
    """Name of a schedule's job in the template, which every occurrence replaces by its own.

    Raises:
        SettingsError: the name is too long for its occurrences.
    """
    if len(schedule) > LONGEST_SCHEDULE_NAME:
        raise SettingsError(
            f"invalid name={schedule!r} of a schedule ({len(schedule)} characters): its jobs are named NAME-YYYYMMDD-HHMM",
            remedy=f"use at most {LONGEST_SCHEDULE_NAME} characters",
        )
    return f"{schedule}{_NO_TIME}"


def render_schedule(request: ScheduleRequest, target: Target) -> tuple[Manifest, ...]:
    """The ConfigMap with the template of the occurrences, those with the parts of their code, and last the CronJob.

    Every occurrence gets ConfigMaps of its own, because it may outlive the schedule. The schedule's are named by their content: a
    pod of the Job before a change still finds what its template belongs to.

    Raises:
        SettingsError: see `render_job`.
        RefusedError: see `render_job`.
    """
    team, name = find_team(request.job.team, target), request.name
    common = {**labels("schedule", version=target.release.platform, team=team.name), SCHEDULE_LABEL: name}
    metadata: dict[str, Any] = {"namespace": team.namespace, "labels": common}
    template = api_object(
        "v1", "ConfigMap", f"{name}-schedule", **metadata, data={_TEMPLATE: _template(request, target)}
    )
    parts = [
        api_object("v1", "ConfigMap", part, **metadata, immutable=True, binaryData=data)
        for part, data in _parts(request).items()
    ]
    cron_job = api_object(
        "batch/v1",
        "CronJob",
        name,
        **metadata,
        spec={
            "schedule": request.cron,
            "timeZone": request.time_zone,
            "concurrencyPolicy": _KUBERNETES_CONCURRENCY[request.concurrency],
            "startingDeadlineSeconds": _LATEST_START_SECONDS,
            "suspend": request.is_suspended,
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {
                "metadata": {
                    # Kueue queues every Job of a team's namespace, and with it the submission while the queue is held.
                    "labels": {
                        **common,
                        QUEUE_LABEL: team.queue,
                        PRIORITY_LABEL: priority_class(request.job.priority),
                    }
                },
                "spec": {
                    "backoffLimit": _SUBMISSION_RETRIES,
                    "activeDeadlineSeconds": _SUBMISSION_SECONDS,
                    "template": _pod(request, target, common, namespace=team.namespace),
                },
            },
        },
    )
    return template, *parts, cron_job


def occurrence_objects(request: ScheduleRequest, target: Target) -> tuple[Manifest, ...]:
    """The objects of an occurrence, with the placeholder's name. Raises like `render_job`."""
    objects = render_job(request.job, target)
    for one in objects:
        one["metadata"]["labels"] = {**one["metadata"]["labels"], SCHEDULE_LABEL: request.name}
    return objects


def _template(request: ScheduleRequest, target: Target) -> str:
    """The objects of an occurrence as JSON, with the name that the program replaces, and without the parts of its code.

    The program fills them in from files of the same names: together they are larger than a ConfigMap.
    """
    objects = occurrence_objects(request, target)
    for one in objects:
        if "binaryData" in one:
            one["binaryData"] = dict.fromkeys(one["binaryData"], "")
    return json.dumps(objects, sort_keys=True)


def _parts(request: ScheduleRequest) -> dict[str, dict[str, str]]:
    """`binaryData` of the ConfigMaps with the schedule's code, by name."""
    code = request.job.code
    return {} if code is None else part_maps(code, f"{request.name}-code-{_short_hash(code)}")


def _short_hash(code: PackedCode) -> str:
    return hashlib.sha256(code.data).hexdigest()[:8]


def _pod(request: ScheduleRequest, target: Target, common: Mapping[str, str], *, namespace: str) -> Manifest:
    name, parts = request.name, tuple(_parts(request))
    container = {
        "name": "submit",
        "image": target.release.images["mlflow"].reference_in(target.outputs.registries["mlflow"]),
        "command": ["python", "-m", "job_schedule"],
        "args": [
            f"--schedule={name}",
            f"--namespace={namespace}",
            "--job=$(JOB_NAME)",
            f"--selector={SCHEDULE_LABEL}={name}",
            f"--template={_FOLDER}/{_TEMPLATE}",
            f"--placeholder={request.job.name}",
            f"--concurrency={request.concurrency}",
            f"--history={request.history}",
            *([f"--code={_CODE_FOLDER}"] if parts else []),
        ],
        "env": [
            {
                "name": "JOB_NAME",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-name']"}},
            }
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
        "volumeMounts": [
            {"name": "template", "mountPath": _FOLDER, "readOnly": True},
            *([{"name": "code", "mountPath": _CODE_FOLDER, "readOnly": True}] if parts else []),
        ],
    }
    return {
        "metadata": {"labels": dict(common)},
        "spec": {
            **head_nodes(),
            "serviceAccountName": SCHEDULER_ACCOUNT,
            "automountServiceAccountToken": True,
            "enableServiceLinks": False,
            "restartPolicy": "Never",
            "priorityClassName": priority_class(request.job.priority),
            "securityContext": dict(RESTRICTED_POD),
            "containers": [container],
            "volumes": [
                {"name": "template", "configMap": {"name": f"{name}-schedule"}},
                *([parts_volume("code", parts)] if parts else []),
            ],
        },
    }

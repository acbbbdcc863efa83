"""The Job that copies a folder of an S3 bucket to the shared datasets.

A plain Job in a namespace of the platform: it needs no GPU, so it does not wait in a queue, and teams mount the datasets
read-only. Its name follows from the destination, so the API server refuses a second one. Its image is MLflow's, which has boto3
and is pulled sooner than the trainer's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from infra.spec.cluster_names import DATA_ACCOUNT, DATA_NAMESPACE, DATASETS_CLAIM, DATASETS_PATH, priority_class
from infra.spec.errors import ExitStatus, RefusedError, SettingsError
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, api_object, labels
from platform_charts.container_resources import ContainerResources
from platform_charts.jobs.request import Target
from platform_charts.jobs.scheduling import head_nodes

CONTAINER = "data-sync"
"""Container of the Job's pods."""

_SOURCE = re.compile(r"s3://(?P<bucket>[^/]+)(/.*)?")
_DESTINATION = re.compile(r"datasets((/[A-Za-z0-9][A-Za-z0-9._-]{0,100})+)/?")
_MOST_WORKERS = 128
_RETRIES = 3
_KEPT_SECONDS = 7 * 24 * 3600
_RESOURCES = ContainerResources(cpu="1", memory="2Gi", cpu_limit="4")
"""Checksums of 16 streams take a core or two; a million objects take about 1 GiB while they are compared."""


@dataclass(frozen=True, kw_only=True)
class DataSyncRequest:
    """A copy.

    Attributes:
        source: s3://BUCKET/FOLDER.
        destination: datasets/NAME, below the root of the file system.
        workers: threads.
        deletes: delete files that were copied earlier and that the source no longer has.
        accepts_unverified: accept objects without a checksum that can be computed.
    """

    source: str
    destination: str
    workers: int = 16
    deletes: bool = False
    accepts_unverified: bool = False

    def __post_init__(self) -> None:
        """Refuse what the program would refuse, before a pod starts.

        Raises:
            SettingsError: names the field, its value and its rule.
        """
        if _SOURCE.fullmatch(self.source) is None:
            raise SettingsError(f"source={self.source!r} must be s3://BUCKET or s3://BUCKET/FOLDER")
        if _DESTINATION.fullmatch(self.destination) is None:
            raise SettingsError(
                f"destination={self.destination!r} must be datasets/NAME or a folder in it",
                remedy="begin names with a letter or digit, and use letters, digits and . _ - only",
            )
        if not 1 <= self.workers <= _MOST_WORKERS:
            raise SettingsError(f"workers={self.workers} must be between 1 and {_MOST_WORKERS}")

    @property
    def job_name(self) -> str:
        """Name of the Job: one per destination."""
        folder = self.destination.strip("/").removeprefix("datasets/")
        slug = re.sub(r"[^a-z0-9]+", "-", folder.lower()).strip("-")[:30].strip("-")
        return f"{slug}-{sha256(folder.encode()).hexdigest()[:8]}"


def render_data_sync(request: DataSyncRequest, target: Target) -> Manifest:
    """The Job.

    Raises:
        RefusedError: the stack's role may not read the bucket.
    """
    match = _SOURCE.fullmatch(request.source)
    assert match is not None, "the request was checked"
    _check_bucket(match["bucket"], target)
    common = labels("data-sync", version=target.release.platform)
    final = [int(ExitStatus.WRONG_INPUT), int(ExitStatus.REFUSED)]
    spec = {
        "backoffLimit": _RETRIES,
        # A retry continues the copy. What is refused is refused again; a pod that was evicted counts as no failure.
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": final}},
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
        "ttlSecondsAfterFinished": _KEPT_SECONDS,
        "template": {"metadata": {"labels": common}, "spec": _pod(request, target)},
    }
    return api_object("batch/v1", "Job", request.job_name, namespace=DATA_NAMESPACE, labels=common, spec=spec)


def _check_bucket(bucket: str, target: Target) -> None:
    sources, env = target.outputs.storage.dataset_sources, target.outputs.environment
    if bucket not in sources:
        raise RefusedError(
            f"bucket {bucket} is no source of datasets in {env}, which has {', '.join(sources) or 'none'}",
            remedy=f"add it to storage.dataset_sources of the environment, and bring the stack up: make up ENV={env}",
        )


def _pod(request: DataSyncRequest, target: Target) -> Manifest:
    switches = {"--delete": request.deletes, "--accept-unverified": request.accepts_unverified}
    container = {
        "name": CONTAINER,
        "image": target.release.images["mlflow"].reference_in(target.outputs.registries["mlflow"]),
        "command": ["python", "-m", "data_sync"],
        "args": [
            request.source,
            request.destination,
            f"--root={DATASETS_PATH}",
            f"--workers={request.workers}",
            *(switch for switch, is_on in switches.items() if is_on),
        ],
        "env": [
            {"name": "AWS_REGION", "value": target.outputs.region},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
        ],
        "resources": _RESOURCES.manifest(),
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "datasets", "mountPath": DATASETS_PATH}],
    }
    return {
        **head_nodes(),
        "serviceAccountName": DATA_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "priorityClassName": priority_class("low"),
        "securityContext": dict(RESTRICTED_POD),
        "containers": [container],
        "volumes": [{"name": "datasets", "persistentVolumeClaim": {"claimName": DATASETS_CLAIM}}],
    }

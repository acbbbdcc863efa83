"""The reaper as a CronJob: `make reap` in the account of the stack, with a role of its own.

It needs no settings file and no Pulumi state, and continues what an earlier run has left, so one run that fails or is lost
with its node does no harm.
"""

from __future__ import annotations

from infra.spec.cluster_names import PLATFORM_PRIORITY, REAPER_NAMESPACE
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, api_object, labels
from infra.spec.names import PLATFORM_ACCOUNTS
from infra.spec.release import ReleaseManifest
from infra.spec.settings.reaper import ReaperSettings
from platform_charts.container_resources import CONTAINERS
from platform_charts.placement import SYSTEM_NODES

_ACCOUNT = PLATFORM_ACCOUNTS["reaper"][0].name
_NAME = "reaper"
_STEP_MINUTES = 40
"""Time for one step of a removal; a database or a cluster takes up to a quarter of an hour."""

_HOURS = 4 * 3600


def reaper_objects(
    found: ReaperSettings, release: ReleaseManifest, *, registry: str, account: str, region: str
) -> tuple[Manifest, ...]:
    """The CronJob and its service account.

    Args:
        found: when and where it looks.
        release: the versions.
        registry: host of the stack's ECR and the prefix of its repositories.
        account: AWS account of the stack; the reaper refuses another one.
        region: AWS region of the stack.
    """
    common = labels(_NAME, version=release.platform)
    regions = [word for name in found.regions or (region,) for word in ("--region", name)]
    container = {
        "name": _NAME,
        "image": release.images["mlflow"].reference(registry),
        "command": ["python", "-m", "infra.lifecycle", "reap"],
        "args": ["--yes", "--account", account, *regions, "--minutes", str(_STEP_MINUTES)],
        "env": [{"name": "AWS_DEFAULT_REGION", "value": region}, {"name": "HOME", "value": "/tmp"}],  # noqa: S108
        "resources": CONTAINERS[_NAME].manifest(),
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - a volume of the pod's own
    }
    pod = {
        "serviceAccountName": _ACCOUNT,
        "automountServiceAccountToken": False,
        "priorityClassName": PLATFORM_PRIORITY,
        "nodeSelector": dict(SYSTEM_NODES),
        "securityContext": dict(RESTRICTED_POD),
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}],
    }
    # A run that fails is not repeated at once: the next one of the schedule continues.
    job = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": _HOURS,
        "template": {"metadata": {"labels": dict(common)}, "spec": pod},
    }
    spec = {
        "schedule": found.schedule,
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": _HOURS,
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 3,
        "jobTemplate": {"metadata": {"labels": dict(common)}, "spec": job},
    }
    service_account = api_object(
        "v1", "ServiceAccount", _ACCOUNT, namespace=REAPER_NAMESPACE, labels=common, automountServiceAccountToken=False
    )
    return service_account, api_object(
        "batch/v1", "CronJob", _NAME, namespace=REAPER_NAMESPACE, labels=common, spec=spec
    )

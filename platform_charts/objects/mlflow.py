"""MLflow: a bootstrap Job for each release, the server, a nightly cleanup, and their RBAC.

The Job creates databases, accounts and Secrets, and migrates the schema. The server's first pods cannot start before the
Job has created their Secret; a later release is deployed after its Job, while the old pods serve.

The cleanup needs no permissions but the server's: it deletes rows of the database and objects of the artifact bucket.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.spec.cluster_names import (
    MLFLOW_CLEANUP,
    MLFLOW_CREDENTIALS,
    MLFLOW_NAMESPACE,
    MLFLOW_SERVER_SECRET,
    PLATFORM_PRIORITY,
)
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, api_object, labels
from infra.spec.names import MLFLOW_URI, PLATFORM_ACCOUNTS
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.container_resources import ContainerResources
from platform_charts.objects.access import role, rule
from platform_charts.placement import SYSTEM_NODES

SERVER = "mlflow"
BOOTSTRAP = "mlflow-bootstrap"

_HOST, _, _PORT = MLFLOW_URI.removeprefix("http://").partition(":")
PORT = int(_PORT)

ACCOUNT = PLATFORM_ACCOUNTS["mlflow"][0].name
"""Service account of server and Job, associated with MLflow's IAM role. Only the Job mounts an API token."""

_HOSTS = (_HOST, f"{SERVER}.{MLFLOW_NAMESPACE}.svc", f"{SERVER}.{MLFLOW_NAMESPACE}", "localhost")
"""Allowed Host headers; `localhost` is for `kubectl port-forward`."""

_BASE_MIB = 512
_WORKER_MIB = 512
"""Memory of the server without workers, and of each worker, which loads all of MLflow. Measured with MLflow 3.17 and
SQLite: 300 MiB, and 255 MiB for a worker after a few searches; a worker gets twice that."""

_BOOTSTRAP_SECONDS = 1800
_CLEANUP_SECONDS = 6 * 3600


@dataclass(frozen=True, kw_only=True)
class Stores:
    """MLflow's backend store and artifact store.

    Attributes:
        database_host: host name of the PostgreSQL server.
        database_port: port of the PostgreSQL server.
        database_secret_arn: Secrets Manager secret with `username` and `password`.
        artifact_bucket: S3 bucket for artifacts.
    """

    database_host: str
    database_port: int
    database_secret_arn: str
    artifact_bucket: str


def mlflow(settings: StackSettings, release: ReleaseManifest, stores: Stores, *, registry: str) -> tuple[Manifest, ...]:
    """MLflow's objects, in order of creation."""
    image = release.images["mlflow"].reference(registry)
    account = api_object(
        "v1",
        "ServiceAccount",
        ACCOUNT,
        namespace=MLFLOW_NAMESPACE,
        labels=_labels(SERVER, release),
        automountServiceAccountToken=False,
    )
    return (
        account,
        *_bootstrap_roles(settings, release),
        _bootstrap_job(settings, release, stores, image),
        _service(release),
        _deployment(settings, release, stores, image),
        *_disruption_budget(settings, release),
        _cleanup(settings, release, stores, image),
    )


def _bootstrap_roles(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """Roles to manage one Secret per namespace; RBAC cannot limit `create` to a name."""
    secrets = {MLFLOW_NAMESPACE: MLFLOW_SERVER_SECRET, **{team.name: MLFLOW_CREDENTIALS for team in settings.teams}}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": MLFLOW_NAMESPACE}
    object_labels = _labels(BOOTSTRAP, release)
    return tuple(
        manifest
        for namespace, secret in secrets.items()
        for manifest in role(
            BOOTSTRAP,
            namespace,
            (rule("", ("secrets",), ("create",)), rule("", ("secrets",), ("get", "patch"), only=(secret,))),
            subject,
            labels=object_labels,
        )
    )


def _bootstrap_job(settings: StackSettings, release: ReleaseManifest, stores: Stores, image: str) -> Manifest:
    """The bootstrap Job, with a hash of its spec in the name, because Jobs are immutable.

    It has no TTL: after a deletion, the stack would recreate and run it on each update.
    """
    environment = {
        **_database_environment(settings, stores),
        "TEAMS": ",".join(team.name for team in settings.teams),
        "POD_NAMESPACE": MLFLOW_NAMESPACE,
    }
    container = _container("migrate", image, _env(environment), memory_mib=1024)
    pod = {**_pod_spec(container), "automountServiceAccountToken": True, "restartPolicy": "OnFailure"}
    object_labels = _labels(BOOTSTRAP, release)
    spec = {
        "backoffLimit": 10,
        "activeDeadlineSeconds": _BOOTSTRAP_SECONDS,
        "template": {"metadata": {"labels": object_labels}, "spec": pod},
    }
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:10]
    return api_object(
        "batch/v1", "Job", f"{BOOTSTRAP}-{digest}", namespace=MLFLOW_NAMESPACE, labels=object_labels, spec=spec
    )


def _service(release: ReleaseManifest) -> Manifest:
    return api_object(
        "v1",
        "Service",
        SERVER,
        namespace=MLFLOW_NAMESPACE,
        labels=_labels(SERVER, release),
        spec={
            "selector": _selector(),
            "ports": [{"name": "http", "port": PORT, "targetPort": PORT, "protocol": "TCP"}],
        },
    )


def _deployment(settings: StackSettings, release: ReleaseManifest, stores: Stores, image: str) -> Manifest:
    workers, object_labels = settings.mlflow.workers, _labels(SERVER, release)
    environment = {
        **_database_environment(settings, stores),
        "MLFLOW_ARTIFACT_BUCKET": stores.artifact_bucket,
        "MLFLOW_ALLOWED_HOSTS": ",".join(_HOSTS),
        "MLFLOW_WORKERS": str(workers),
        "LISTEN_PORT": str(PORT),
    }
    key = {"secretKeyRef": {"name": MLFLOW_SERVER_SECRET, "key": "flask-secret-key"}}
    variables = [*_env(environment), {"name": "MLFLOW_FLASK_SERVER_SECRET_KEY", "valueFrom": key}]
    container = {
        **_container("serve", image, variables, memory_mib=_BASE_MIB + workers * _WORKER_MIB),
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "startupProbe": {**_health(), "periodSeconds": 5, "failureThreshold": 36},
        "readinessProbe": {**_health(), "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": {**_health(), "periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 6},
        # Requests still arrive until every node has removed the terminating pod's endpoint.
        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
    }
    spread = {
        "topologyKey": "topology.kubernetes.io/zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": _selector()},
    }
    return api_object(
        "apps/v1",
        "Deployment",
        SERVER,
        namespace=MLFLOW_NAMESPACE,
        labels=object_labels,
        spec={
            "replicas": settings.mlflow.replicas,
            "selector": {"matchLabels": _selector()},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": object_labels},
                "spec": {
                    **_pod_spec(container),
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 60,
                    "topologySpreadConstraints": [spread],
                },
            },
        },
    )


def _cleanup(settings: StackSettings, release: ReleaseManifest, stores: Stores, image: str) -> Manifest:
    """Deletes for good what users have deleted, each night. The server may run meanwhile."""
    environment = {
        **_database_environment(settings, stores),
        "MLFLOW_ARTIFACT_BUCKET": stores.artifact_bucket,
        "CLEANUP_OLDER_THAN_DAYS": str(settings.mlflow.delete_after_days),
        "CLEANUP_STORAGE_GIB": str(settings.database.max_allocated_gib),
    }
    container = _container("cleanup", image, _env(environment), memory_mib=1024)
    if settings.mlflow.cleanup == "preview":
        container["command"].append("--preview")
    pod = {**_pod_spec(container), "automountServiceAccountToken": False, "restartPolicy": "Never"}
    object_labels = _labels(MLFLOW_CLEANUP, release)
    job = {
        "backoffLimit": 2,
        "activeDeadlineSeconds": _CLEANUP_SECONDS,
        "template": {"metadata": {"labels": object_labels}, "spec": pod},
    }
    spec = {
        "schedule": "17 3 * * *",
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": _CLEANUP_SECONDS,
        "suspend": settings.mlflow.cleanup == "suspended",
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 2,
        "jobTemplate": {"metadata": {"labels": object_labels}, "spec": job},
    }
    return api_object(
        "batch/v1", "CronJob", MLFLOW_CLEANUP, namespace=MLFLOW_NAMESPACE, labels=object_labels, spec=spec
    )


def _disruption_budget(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """None for a single replica, where a budget would block every drain of its node."""
    if settings.mlflow.replicas == 1:
        return ()
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": _selector()}}
    object_labels = _labels(SERVER, release)
    return (
        api_object(
            "policy/v1", "PodDisruptionBudget", SERVER, namespace=MLFLOW_NAMESPACE, labels=object_labels, spec=spec
        ),
    )


def _pod_spec(container: Mapping[str, Any]) -> Manifest:
    return {
        "serviceAccountName": ACCOUNT,
        "priorityClassName": PLATFORM_PRIORITY,
        "nodeSelector": dict(SYSTEM_NODES),
        "securityContext": dict(RESTRICTED_POD),
        # Kubernetes's variables for the service `mlflow`, such as MLFLOW_PORT, collide with MLflow's own options.
        "enableServiceLinks": False,
        "containers": [dict(container)],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "10Gi"}}],
    }


def _container(command: str, image: str, variables: list[Manifest], *, memory_mib: int) -> Manifest:
    return {
        "name": "mlflow",
        "image": image,
        "command": ["python", "-m", "mlflow_server", command],
        "env": [*variables, {"name": "HOME", "value": "/tmp"}],  # noqa: S108 - a volume of the pod's own
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
        "resources": ContainerResources(cpu="500m", memory=f"{memory_mib}Mi", cpu_limit="4").manifest(),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
    }


def _database_environment(settings: StackSettings, stores: Stores) -> dict[str, str]:
    return {
        "AWS_REGION": settings.aws.region,
        "AWS_DEFAULT_REGION": settings.aws.region,  # for boto3
        "MLFLOW_DB_HOST": stores.database_host,
        "MLFLOW_DB_PORT": str(stores.database_port),
        "MLFLOW_DB_SECRET_ARN": stores.database_secret_arn,
    }


def _env(environment: Mapping[str, str]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in environment.items()]


def _health() -> Manifest:
    return {"httpGet": {"path": "/health", "port": "http"}}


def _labels(component: str, release: ReleaseManifest) -> dict[str, str]:
    return labels(component, version=release.platform)


def _selector() -> dict[str, str]:
    """Without the release's labels, because selectors are immutable."""
    return {"app.kubernetes.io/name": SERVER}

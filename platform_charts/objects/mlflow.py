"""MLflow: a bootstrap Job for each release, the server, its CronJobs, and their RBAC.

The Job creates databases, accounts and Secrets, and migrates the schema. The server's first pods cannot start before the
Job has created their Secret; a later release is deployed after its Job, while the old pods serve.
"""

from __future__ import annotations

import hashlib
import json

from infra.spec.cluster_names import MLFLOW_CREDENTIALS, MLFLOW_NAMESPACE, MLFLOW_SERVER_SECRET
from infra.spec.manifest import Manifest, api_object
from infra.spec.names import MLFLOW_URI, PLATFORM_ACCOUNTS
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.objects.access import role, rule
from platform_charts.objects.mlflow_pods import (
    Stores,
    as_variables,
    component_labels,
    database_environment,
    pod_container,
    pod_spec,
)
from platform_charts.objects.mlflow_schedules import schedules

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


def mlflow(settings: StackSettings, release: ReleaseManifest, stores: Stores, *, registry: str) -> tuple[Manifest, ...]:
    """MLflow's objects, in order of creation."""
    image = release.images["mlflow"].reference(registry)
    account = api_object(
        "v1",
        "ServiceAccount",
        ACCOUNT,
        namespace=MLFLOW_NAMESPACE,
        labels=component_labels(SERVER, release),
        automountServiceAccountToken=False,
    )
    return (
        account,
        *_bootstrap_roles(settings, release),
        _bootstrap_job(settings, release, stores, image),
        _service(release),
        _deployment(settings, release, stores, image),
        *_disruption_budget(settings, release),
        *schedules(settings, release, stores, image=image),
    )


def _bootstrap_roles(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """Roles to manage one Secret per namespace; RBAC cannot limit `create` to a name."""
    secrets = {MLFLOW_NAMESPACE: MLFLOW_SERVER_SECRET, **{team.name: MLFLOW_CREDENTIALS for team in settings.teams}}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": MLFLOW_NAMESPACE}
    object_labels = component_labels(BOOTSTRAP, release)
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
        **database_environment(settings, stores),
        "TEAMS": ",".join(team.name for team in settings.teams),
        "POD_NAMESPACE": MLFLOW_NAMESPACE,
    }
    container = pod_container("migrate", image, as_variables(environment), memory_mib=1024)
    pod = {**pod_spec(container, account=ACCOUNT), "automountServiceAccountToken": True, "restartPolicy": "OnFailure"}
    object_labels = component_labels(BOOTSTRAP, release)
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
        labels=component_labels(SERVER, release),
        spec={
            "selector": _selector(),
            "ports": [{"name": "http", "port": PORT, "targetPort": PORT, "protocol": "TCP"}],
        },
    )


def _deployment(settings: StackSettings, release: ReleaseManifest, stores: Stores, image: str) -> Manifest:
    workers, object_labels = settings.mlflow.workers, component_labels(SERVER, release)
    environment = {
        **database_environment(settings, stores),
        "MLFLOW_ARTIFACT_BUCKET": stores.artifact_bucket,
        "MLFLOW_ALLOWED_HOSTS": ",".join(_HOSTS),
        "MLFLOW_WORKERS": str(workers),
        "LISTEN_PORT": str(PORT),
    }
    key = {"secretKeyRef": {"name": MLFLOW_SERVER_SECRET, "key": "flask-secret-key"}}
    variables = [*as_variables(environment), {"name": "MLFLOW_FLASK_SERVER_SECRET_KEY", "valueFrom": key}]
    container = {
        **pod_container("serve", image, variables, memory_mib=_BASE_MIB + workers * _WORKER_MIB),
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
                    **pod_spec(container, account=ACCOUNT),
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 60,
                    "topologySpreadConstraints": [spread],
                },
            },
        },
    )


def _disruption_budget(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """None for a single replica, where a budget would block every drain of its node."""
    if settings.mlflow.replicas == 1:
        return ()
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": _selector()}}
    object_labels = component_labels(SERVER, release)
    return (
        api_object(
            "policy/v1", "PodDisruptionBudget", SERVER, namespace=MLFLOW_NAMESPACE, labels=object_labels, spec=spec
        ),
    )


def _health() -> Manifest:
    return {"httpGet": {"path": "/health", "port": "http"}}


def _selector() -> dict[str, str]:
    """Without the release's labels, because selectors are immutable."""
    return {"app.kubernetes.io/name": SERVER}

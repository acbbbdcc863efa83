"""MLflow: a Job that prepares each release, the server, and what they need.

The Job makes databases, accounts and Secrets. The server's pods cannot start without the Secret, so they wait for the
first Job; a later release's pods start as its Job has brought the schema up, until then the old ones serve.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.spec.cluster_names import MLFLOW_CREDENTIALS, MLFLOW_NAMESPACE, MLFLOW_SERVER_SECRET, PLATFORM_PRIORITY
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, api_object, labels
from infra.spec.names import MLFLOW_URI, PLATFORM_ACCOUNTS
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.objects.access import role, rule
from platform_charts.placement import SYSTEM_NODES, resources

SERVER = "mlflow"
BOOTSTRAP = "mlflow-bootstrap"

_HOST, _, _PORT = MLFLOW_URI.removeprefix("http://").partition(":")
PORT = int(_PORT)

ACCOUNT = PLATFORM_ACCOUNTS["mlflow"][0].name
"""Account of server and Job: the one that Pod Identity gives MLflow's role. Only the Job has a token of the cluster."""

_HOSTS = (_HOST, f"{SERVER}.{MLFLOW_NAMESPACE}.svc", f"{SERVER}.{MLFLOW_NAMESPACE}", "localhost")
"""Names that a request may call the server by; `localhost` is what `kubectl port-forward` makes of it."""

_BASE_MIB = 512
_WORKER_MIB = 512
"""Memory of the server without its workers, and of each worker, which loads all of MLflow for itself. Measured with MLflow
3.17 and SQLite: 300 MiB, and 255 MiB a worker that has answered a few searches; a worker gets twice that."""

_BOOTSTRAP_SECONDS = 1800


@dataclass(frozen=True, kw_only=True)
class Stores:
    """Where MLflow keeps what it is told.

    Attributes:
        database_host: host name of the PostgreSQL server.
        database_port: its port.
        database_secret_arn: Secrets Manager secret with its login.
        artifact_bucket: S3 bucket of the artifacts.
    """

    database_host: str
    database_port: int
    database_secret_arn: str
    artifact_bucket: str


def mlflow(settings: StackSettings, release: ReleaseManifest, stores: Stores, *, registry: str) -> tuple[Manifest, ...]:
    """MLflow's objects, in the order in which they are made."""
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
        *_bootstrap_rights(settings, release),
        _bootstrap_job(settings, release, stores, image),
        _service(release),
        _deployment(settings, release, stores, image),
        *_disruption_budget(settings, release),
    )


def _bootstrap_rights(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """The Job makes one Secret in each namespace, and reads and mends that one only; `create` cannot be narrowed."""
    secrets = {MLFLOW_NAMESPACE: MLFLOW_SERVER_SECRET, **{team.name: MLFLOW_CREDENTIALS for team in settings.teams}}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": MLFLOW_NAMESPACE}
    marks = _labels(BOOTSTRAP, release)
    return tuple(
        found
        for namespace, secret in secrets.items()
        for found in role(
            BOOTSTRAP,
            namespace,
            (rule("", ("secrets",), ("create",)), rule("", ("secrets",), ("get", "patch"), only=(secret,))),
            subject,
            labels=marks,
        )
    )


def _bootstrap_job(settings: StackSettings, release: ReleaseManifest, stores: Stores, image: str) -> Manifest:
    """Its name tells what it runs: a Job cannot be changed, and another release or team is another Job.

    It is kept when it has finished; where it vanished, the stack would run it again each time.
    """
    environment = {
        **_database_environment(settings, stores),
        "TEAMS": ",".join(team.name for team in settings.teams),
        "POD_NAMESPACE": MLFLOW_NAMESPACE,
    }
    container = _container("migrate", image, _plain(environment), memory_mib=1024)
    pod = {**_pod_spec(container), "automountServiceAccountToken": True, "restartPolicy": "OnFailure"}
    marks = _labels(BOOTSTRAP, release)
    spec = {
        "backoffLimit": 10,
        "activeDeadlineSeconds": _BOOTSTRAP_SECONDS,
        "template": {"metadata": {"labels": marks}, "spec": pod},
    }
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:10]
    return api_object("batch/v1", "Job", f"{BOOTSTRAP}-{digest}", namespace=MLFLOW_NAMESPACE, labels=marks, spec=spec)


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
    workers, marks = settings.mlflow.workers, _labels(SERVER, release)
    environment = {
        **_database_environment(settings, stores),
        "MLFLOW_ARTIFACT_BUCKET": stores.artifact_bucket,
        "MLFLOW_ALLOWED_HOSTS": ",".join(_HOSTS),
        "MLFLOW_WORKERS": str(workers),
        "LISTEN_PORT": str(PORT),
    }
    key = {"secretKeyRef": {"name": MLFLOW_SERVER_SECRET, "key": "flask-secret-key"}}
    variables = [*_plain(environment), {"name": "MLFLOW_FLASK_SERVER_SECRET_KEY", "valueFrom": key}]
    container = {
        **_container("serve", image, variables, memory_mib=_BASE_MIB + workers * _WORKER_MIB),
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "startupProbe": {**_health(), "periodSeconds": 5, "failureThreshold": 36},
        "readinessProbe": {**_health(), "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": {**_health(), "periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 6},
        # Requests still come in until every node knows that the pod is going.
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
        labels=marks,
        spec={
            "replicas": settings.mlflow.replicas,
            "selector": {"matchLabels": _selector()},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": marks},
                "spec": {
                    **_pod_spec(container),
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 60,
                    "topologySpreadConstraints": [spread],
                },
            },
        },
    )


def _disruption_budget(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """Of a single replica a budget would only keep its node from ever being drained."""
    if settings.mlflow.replicas == 1:
        return ()
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": _selector()}}
    marks = _labels(SERVER, release)
    return (
        api_object("policy/v1", "PodDisruptionBudget", SERVER, namespace=MLFLOW_NAMESPACE, labels=marks, spec=spec),
    )


def _pod_spec(container: Mapping[str, Any]) -> Manifest:
    return {
        "serviceAccountName": ACCOUNT,
        "priorityClassName": PLATFORM_PRIORITY,
        "nodeSelector": dict(SYSTEM_NODES),
        "securityContext": dict(RESTRICTED_POD),
        # Kubernetes would describe every service of the namespace in variables; that of the service `mlflow` has the
        # names of MLflow's own options, and not their meaning.
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
        "resources": resources(cpu="500m", memory=f"{memory_mib}Mi"),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
    }


def _database_environment(settings: StackSettings, stores: Stores) -> dict[str, str]:
    return {
        "AWS_REGION": settings.aws.region,
        "AWS_DEFAULT_REGION": settings.aws.region,  # the name that boto3 reads
        "MLFLOW_DB_HOST": stores.database_host,
        "MLFLOW_DB_PORT": str(stores.database_port),
        "MLFLOW_DB_SECRET_ARN": stores.database_secret_arn,
    }


def _plain(environment: Mapping[str, str]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in environment.items()]


def _health() -> Manifest:
    return {"httpGet": {"path": "/health", "port": "http"}}


def _labels(component: str, release: ReleaseManifest) -> dict[str, str]:
    return labels(component, version=release.platform)


def _selector() -> dict[str, str]:
    """Nothing of the release in it: a selector cannot be changed."""
    return {"app.kubernetes.io/name": SERVER}

"""What the pods of MLflow's image have in common: the server, the bootstrap Job and the CronJobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.spec.cluster_names import PLATFORM_PRIORITY
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, labels
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.container_resources import ContainerResources
from platform_charts.placement import SYSTEM_NODES

CONTAINER = "mlflow"


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


def pod_spec(container: Mapping[str, Any], *, account: str) -> Manifest:
    """The spec of a pod with one container, which writes to /tmp only."""
    return {
        "serviceAccountName": account,
        "priorityClassName": PLATFORM_PRIORITY,
        "nodeSelector": dict(SYSTEM_NODES),
        "securityContext": dict(RESTRICTED_POD),
        # Kubernetes's variables for the service `mlflow`, such as MLFLOW_PORT, collide with MLflow's own options.
        "enableServiceLinks": False,
        "containers": [dict(container)],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "10Gi"}}],
    }


def pod_container(command: str, image: str, variables: list[Manifest], *, memory_mib: int) -> Manifest:
    """The container that runs a command of the image's program."""
    return {
        "name": CONTAINER,
        "image": image,
        "command": ["python", "-m", "mlflow_server", command],
        "env": [*variables, {"name": "HOME", "value": "/tmp"}],  # noqa: S108 - a volume of the pod's own
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
        "resources": ContainerResources(cpu="500m", memory=f"{memory_mib}Mi", cpu_limit="4").manifest(),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
    }


def database_environment(settings: StackSettings, stores: Stores) -> dict[str, str]:
    """Environment variables with the database's address."""
    return {
        "AWS_REGION": settings.aws.region,
        "AWS_DEFAULT_REGION": settings.aws.region,  # for boto3
        "MLFLOW_DB_HOST": stores.database_host,
        "MLFLOW_DB_PORT": str(stores.database_port),
        "MLFLOW_DB_SECRET_ARN": stores.database_secret_arn,
    }


def as_variables(environment: Mapping[str, str]) -> list[Manifest]:
    """Environment variables as a container has them."""
    return [{"name": name, "value": value} for name, value in environment.items()]


def component_labels(component: str, release: ReleaseManifest) -> dict[str, str]:
    """Labels of an object."""
    return labels(component, version=release.platform)

"""Names that several parts of the stack share: physical names, tags, namespaces and service accounts.

Plain data, so that code without Pulumi (job submission, the preflight) can use it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from infra.spec.cluster_names import (
    DATA_ACCOUNT,
    DATA_NAMESPACE,
    GPU_NAMESPACE,
    MLFLOW_NAMESPACE,
    MONITORING_NAMESPACE,
    TRAINER_ACCOUNT,
)
from infra.spec.node_labels import LABEL_PREFIX
from infra.spec.outputs import Workload
from infra.spec.release import ReleaseManifest
from infra.spec.settings.loading import PROJECT
from infra.spec.settings.stack import StackSettings

BucketPurpose = Literal["checkpoints", "artifacts", "logs"]

STACK_TAG = "stack"
"""Key of the tag that identifies a stack's resources for cost allocation and the leak audit."""

MLFLOW_URI = f"http://mlflow.{MLFLOW_NAMESPACE}.svc.cluster.local:5000"
"""Tracking URI inside the cluster: Service `mlflow` in namespace `mlflow`."""


class ServiceAccount(NamedTuple):
    """A Kubernetes service account."""

    namespace: str
    name: str


PLATFORM_ACCOUNTS: Mapping[Workload, tuple[ServiceAccount, ...]] = {
    "mlflow": (ServiceAccount(MLFLOW_NAMESPACE, "mlflow"),),
    "autoscaler": (ServiceAccount("kube-system", "cluster-autoscaler"),),
    "ebs-csi": (ServiceAccount("kube-system", "ebs-csi-controller-sa"),),
    "efs-csi": (
        ServiceAccount("kube-system", "efs-csi-controller-sa"),
        ServiceAccount("kube-system", "efs-csi-node-sa"),
    ),
    "monitoring": (ServiceAccount(MONITORING_NAMESPACE, "alertmanager"),),
    "logs": (ServiceAccount(GPU_NAMESPACE, "fluent-bit"),),
    "data-sync": (ServiceAccount(DATA_NAMESPACE, DATA_ACCOUNT),),
}
"""Service accounts that assume each platform workload's role; the trainer's service accounts follow from the teams."""


def alert_topic_name(settings: StackSettings) -> str:
    """Name of the SNS topic that mails alerts."""
    return f"{cluster_name(settings)}-alerts"


def container_log_group(settings: StackSettings) -> str | None:
    """Name of the CloudWatch log group of the pods' logs; None if they are shipped elsewhere."""
    return f"/rtp/{cluster_name(settings)}/containers" if settings.logs.destination == "cloudwatch" else None


def trainer_account(team: str) -> ServiceAccount:
    """The service account that a team's jobs run as."""
    return ServiceAccount(team, TRAINER_ACCOUNT)


TEAM_GROUP_PREFIX = f"{LABEL_PREFIX}:team:"


def team_group(team: str) -> str:
    """The Kubernetes group whose members may submit jobs to a team's namespace."""
    return f"{TEAM_GROUP_PREFIX}{team}"


def cluster_name(settings: StackSettings) -> str:
    """Name of the EKS cluster, and prefix of every other fixed physical name."""
    return f"rtp-{settings.environment.name}"


def bucket_name(cluster: str, purpose: BucketPurpose, *, account: str) -> str:
    """Name of a bucket; contains the account because bucket names are globally unique."""
    return f"{cluster}-{purpose}-{account}"


def database_identifier(settings: StackSettings) -> str:
    """Identifier of MLflow's RDS instance."""
    return f"{cluster_name(settings)}-mlflow"


def stack_tag(settings: StackSettings) -> str:
    """Value of the stack tag, unique to this environment within the account."""
    return f"{PROJECT}/{settings.environment.name}"


def node_tags(settings: StackSettings) -> dict[str, str]:
    """Tags of resources that EKS launches, which do not get the provider's default tags.

    They exclude the platform's version: each release would change the launch template and replace every node.
    """
    environment = settings.environment
    tags = {
        "platform": PROJECT,
        STACK_TAG: stack_tag(settings),
        "environment": environment.name,
        "kind": environment.kind.value,
        "owner": environment.owner,
    }
    if environment.expires is not None:
        tags["expires"] = environment.expires.isoformat()
    return tags


def default_tags(settings: StackSettings, release: ReleaseManifest) -> dict[str, str]:
    """Tags of every resource of the stack."""
    return {**node_tags(settings), "version": release.platform}

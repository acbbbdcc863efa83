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
    MLFLOW_BACKUP,
    MLFLOW_NAMESPACE,
    MONITORING_NAMESPACE,
    REAPER_NAMESPACE,
    TRAINER_ACCOUNT,
)
from infra.spec.node_labels import LABEL_PREFIX
from infra.spec.outputs import Workload
from infra.spec.release import ReleaseManifest
from infra.spec.settings.loading import PROJECT
from infra.spec.settings.stack import StackSettings

BucketPurpose = Literal["checkpoints", "artifacts", "logs"]

ARTIFACT_FOLDER = "mlflow"
"""Folder of the artifact bucket with MLflow's artifacts."""

BACKUP_FOLDER = "backups"
"""Folder of the artifact bucket with MLflow's backups."""

STACK_TAG = "stack"
"""Key of the tag that identifies a stack's resources for cost allocation and the leak audit."""

PLATFORM_TAG, KIND_TAG, EXPIRES_TAG = "platform", "kind", "expires"
"""Keys of the tags that say which stacks are test clusters, and until when."""

MLFLOW_URI = f"http://mlflow.{MLFLOW_NAMESPACE}.svc.cluster.local:5000"
"""Tracking URI inside the cluster: Service `mlflow` in namespace `mlflow`."""


class ServiceAccount(NamedTuple):
    """A Kubernetes service account."""

    namespace: str
    name: str


PLATFORM_ACCOUNTS: Mapping[Workload, tuple[ServiceAccount, ...]] = {
    "mlflow": (ServiceAccount(MLFLOW_NAMESPACE, "mlflow"),),
    "mlflow-backup": (ServiceAccount(MLFLOW_NAMESPACE, MLFLOW_BACKUP),),
    "autoscaler": (ServiceAccount("kube-system", "cluster-autoscaler"),),
    "ebs-csi": (ServiceAccount("kube-system", "ebs-csi-controller-sa"),),
    "efs-csi": (
        ServiceAccount("kube-system", "efs-csi-controller-sa"),
        ServiceAccount("kube-system", "efs-csi-node-sa"),
    ),
    "monitoring": (ServiceAccount(MONITORING_NAMESPACE, "alertmanager"),),
    "logs": (ServiceAccount(GPU_NAMESPACE, "fluent-bit"),),
    "data-sync": (ServiceAccount(DATA_NAMESPACE, DATA_ACCOUNT),),
    "reaper": (ServiceAccount(REAPER_NAMESPACE, "reaper"),),
}
"""Service accounts that assume each platform workload's role; the trainer's service accounts follow from the teams."""

CNI_ACCOUNT = ServiceAccount("kube-system", "aws-node")
"""Service account of the VPC CNI."""


def alert_topic_name(settings: StackSettings) -> str:
    """Name of the SNS topic that mails alerts."""
    return f"{name_prefix(settings)}-alerts"


def container_log_group(settings: StackSettings) -> str | None:
    """Name of the CloudWatch log group of the pods' logs; None if they are shipped elsewhere."""
    return f"/rtp/{name_prefix(settings)}/containers" if settings.logs.destination == "cloudwatch" else None


def trainer_account(team: str) -> ServiceAccount:
    """The service account that a team's jobs run as."""
    return ServiceAccount(team, TRAINER_ACCOUNT)


TEAM_GROUP_PREFIX = f"{LABEL_PREFIX}:team:"


def team_group(team: str) -> str:
    """The Kubernetes group whose members may submit jobs to a team's namespace."""
    return f"{TEAM_GROUP_PREFIX}{team}"


CLUSTER_ADMIN = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
"""Access policy of administrators of a cluster."""

CLUSTER_PREFIX = "rtp-"
"""Prefix of every fixed physical name of all stacks, and so of the names of their clusters."""


TEST_PREFIX = "test-"
"""Beginning of the name of every disposable environment."""


def prefix_of(environment: str) -> str:
    """Prefix of every fixed physical name of an environment's stack, which is the name of a cluster of its own."""
    return f"{CLUSTER_PREFIX}{environment}"


def role_path(environment: str) -> str:
    """Path of the IAM roles of an environment's stack."""
    return f"/{prefix_of(environment)}/"


def name_prefix(settings: StackSettings) -> str:
    """Prefix of every fixed physical name of the stack, which is the name of a cluster of its own."""
    return prefix_of(settings.environment.name)


def cluster_name(settings: StackSettings) -> str:
    """Name of the EKS cluster that the stack's nodes join."""
    existing = settings.cluster.existing
    return name_prefix(settings) if existing is None else existing.name


def bucket_name(prefix: str, purpose: BucketPurpose, *, account: str) -> str:
    """Name of a bucket of the stack with this `name_prefix`; contains the account because bucket names are globally unique."""
    return f"{prefix}-{purpose}-{account}"


def database_of(prefix: str) -> str:
    """Identifier of MLflow's RDS instance of the stack with this `name_prefix`."""
    return f"{prefix}-mlflow"


def database_identifier(settings: StackSettings) -> str:
    """Identifier of MLflow's RDS instance."""
    return database_of(name_prefix(settings))


def stack_tag_of(environment: str) -> str:
    """Value of the stack tag of an environment, unique within the account."""
    return f"{PROJECT}/{environment}"


def stack_tag(settings: StackSettings) -> str:
    """Value of the stack tag, unique to this environment within the account."""
    return stack_tag_of(settings.environment.name)


def node_tags(settings: StackSettings) -> dict[str, str]:
    """Tags of resources that EKS launches, which do not get the provider's default tags.

    They exclude the platform's version: each release would change the launch template and replace every node.
    """
    environment = settings.environment
    tags = {
        PLATFORM_TAG: PROJECT,
        STACK_TAG: stack_tag(settings),
        "environment": environment.name,
        KIND_TAG: environment.kind.value,
        "owner": environment.owner,
    }
    if environment.expires is not None:
        tags[EXPIRES_TAG] = environment.expires.isoformat()
    if environment.purpose is not None:
        tags["purpose"] = environment.purpose
    return tags


def discovery_tags(settings: StackSettings) -> dict[str, str]:
    """Tags of the Auto Scaling groups that the stack's autoscaler may change.

    EKS tags the groups of every node group of a cluster. In a cluster that others use too, the stack adds its own tag.
    """
    tags = {f"k8s.io/cluster-autoscaler/{cluster_name(settings)}": "owned"}
    return tags if settings.cluster.existing is None else {**tags, STACK_TAG: stack_tag(settings)}


def default_tags(settings: StackSettings, release: ReleaseManifest) -> dict[str, str]:
    """Tags of every resource of the stack."""
    return {**node_tags(settings), "version": release.platform}

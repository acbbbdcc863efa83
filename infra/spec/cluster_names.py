"""Names inside the cluster that several parts share: namespaces, classes, claims, ports."""

from __future__ import annotations

from typing import Literal

KUEUE_API = "kueue.x-k8s.io/v1beta2"
"""The version of Kueue's API that it stores."""

MLFLOW_NAMESPACE = "mlflow"
MONITORING_NAMESPACE = "monitoring"
KUBERAY_NAMESPACE = "kuberay-system"
KUEUE_NAMESPACE = "kueue-system"
GPU_NAMESPACE = "gpu-system"
"""Device plugins and the DCGM exporter: the only one of our namespaces that admits privileged pods."""

PLATFORM_NAMESPACES = (
    MLFLOW_NAMESPACE,
    MONITORING_NAMESPACE,
    KUBERAY_NAMESPACE,
    KUEUE_NAMESPACE,
    GPU_NAMESPACE,
)
"""All of them; no team may have one of these names."""

TRAINER_ACCOUNT = "trainer"
"""Service account of a team's jobs, in the team's namespace; see `infra.spec.names.trainer_account`."""

Priority = Literal["low", "normal", "high"]

PRIORITY_PREFIX = "training-"
"""A job's priority `normal` is the class `training-normal`, of Kubernetes and of Kueue alike."""


def priority_class(priority: Priority) -> str:
    """Name of a priority's class, of Kubernetes and of Kueue."""
    return f"{PRIORITY_PREFIX}{priority}"


PLATFORM_PRIORITY = "platform-critical"
"""Priority class of what every job depends on; a team's namespace admits no pod that claims it."""

DATASETS_CLAIM = "datasets"
"""Claim of the datasets in each team's namespace, read-only."""

RUNS_CLAIM = "runs"
"""Claim of the team's own runs in its namespace; no other namespace has a claim on them."""

DATASETS_PATH = "/mnt/datasets"
"""Mount path of the datasets in every pod of a job: `/datasets` of the file system."""

RUNS_PATH = "/mnt/runs"
"""Mount path of the team's runs and of its own data in every pod of a job: `/teams/<team>` of the file system."""

MLFLOW_CREDENTIALS = "mlflow-credentials"
"""Secret in each team's namespace with MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD."""

MLFLOW_SERVER_SECRET = "mlflow-server"  # noqa: S105 - a name
"""Secret in MLflow's own namespace with `flask-secret-key` and `admin-password`; its bootstrap Job makes it."""

GP3_CLASS = "gp3"
EFS_CLASS = "efs"

RAY_PORTS = {
    "gcs": 6379,
    "dashboard": 8265,
    "client": 10001,
    "metrics": 8080,
    "as-metrics": 44217,
    "dash-metrics": 44227,
}
"""Ports of a Ray head by the name that the PodMonitors select; workers have `metrics` only."""

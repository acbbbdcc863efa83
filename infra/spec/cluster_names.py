"""Names inside the cluster that several packages share: namespaces, classes, claims, ports."""

from __future__ import annotations

from typing import Literal

KUEUE_API = "kueue.x-k8s.io/v1beta2"
"""Kueue's storage version."""

MLFLOW_NAMESPACE = "mlflow"
MONITORING_NAMESPACE = "monitoring"
KUBERAY_NAMESPACE = "kuberay-system"
KUEUE_NAMESPACE = "kueue-system"
GPU_NAMESPACE = "gpu-system"
"""Namespace of device plugins and DCGM exporter: the only platform namespace that admits privileged pods."""

PLATFORM_NAMESPACES = (
    MLFLOW_NAMESPACE,
    MONITORING_NAMESPACE,
    KUBERAY_NAMESPACE,
    KUEUE_NAMESPACE,
    GPU_NAMESPACE,
)
"""All platform namespaces; teams may not use these names."""

TRAINER_ACCOUNT = "trainer"
"""Service account of a team's jobs, in the team's namespace; see `infra.spec.names.trainer_account`."""

Priority = Literal["low", "normal", "high"]

PRIORITY_PREFIX = "training-"
"""Prefix of priority class names: priority `normal` is the class `training-normal` in Kubernetes and Kueue."""


def priority_class(priority: Priority) -> str:
    """Name of a priority's PriorityClass and WorkloadPriorityClass."""
    return f"{PRIORITY_PREFIX}{priority}"


PLATFORM_PRIORITY = "platform-critical"
"""Priority class of components that every job depends on; team namespaces do not admit pods that use it."""

DATASETS_CLAIM = "datasets"
"""PersistentVolumeClaim of the datasets in each team's namespace, read-only."""

RUNS_CLAIM = "runs"
"""PersistentVolumeClaim of a team's runs, in that team's namespace only."""

DATASETS_PATH = "/mnt/datasets"
"""Mount path of the datasets in a job's pods: `/datasets` of the file system."""

RUNS_PATH = "/mnt/runs"
"""Mount path of a team's runs and data in a job's pods: `/teams/<team>` of the file system."""

MLFLOW_CREDENTIALS = "mlflow-credentials"
"""Secret in each team's namespace with MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD."""

MLFLOW_SERVER_SECRET = "mlflow-server"  # noqa: S105 - a name
"""Secret in MLflow's namespace with `flask-secret-key` and `admin-password`; MLflow's bootstrap Job creates it."""

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
"""Ports of a Ray head by port name, which the PodMonitors select; workers have `metrics` only."""

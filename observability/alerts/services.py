"""Rules about the platform's own services, and about metrics that are missing: without them the other rules are blind."""

from __future__ import annotations

from infra.spec.cluster_names import (
    GPU_NAMESPACE,
    JOB_SIZER_ACCOUNT,
    KUBERAY_NAMESPACE,
    KUEUE_NAMESPACE,
    MLFLOW_BACKUP,
    MLFLOW_CLEANUP,
    MLFLOW_NAMESPACE,
    MLFLOW_RESTORE_DRILL,
    MONITORING_NAMESPACE,
)
from observability.alerts.expressions import COUNT, GPU_NODES
from observability.alerts.model import Alert, Group, Severity

_AVAILABLE = "kube_deployment_status_replicas_available"
_CONTROLLERS = f"{KUBERAY_NAMESPACE}|{KUEUE_NAMESPACE}|{GPU_NAMESPACE}|kube-system"
_SIZER = f'{_AVAILABLE}{{namespace="{MONITORING_NAMESPACE}",deployment="{JOB_SIZER_ACCOUNT}"}}'
_DEPLOYMENT = "{{ $labels.namespace }}/{{ $labels.deployment }}"
_HEADS = f'up{{job="{MONITORING_NAMESPACE}/ray-heads"}} == 1'
_RUNNING = 'max by (namespace, name) (kuberay_job_deployment_status{deployment_status="Running"})'

CLEANUP_SECONDS = 54 * 3600
"""Two nights without a successful cleanup, and some hours for it."""

BACKUP_SECONDS = 30 * 3600
"""A night without a backup, and some hours for the next: what a loss of the database may cost (docs/BACKUP.md)."""

DRILL_SECONDS = 8 * 86_400
"""A week without a successful restore drill, and a day."""


def _without_success(cron_job: str, seconds: int) -> str:
    """A CronJob that is not suspended and has had no success for so long; a new one counts from its creation."""
    labels = f'{{namespace="{MLFLOW_NAMESPACE}", cronjob="{cron_job}"}}'
    since = f"(kube_cronjob_status_last_successful_time{labels} or kube_cronjob_created{labels})"
    return (
        f"time() - max by (namespace, cronjob) {since} > {seconds} "
        f"unless on (namespace, cronjob) kube_cronjob_spec_suspend{labels} == 1"
    )


_NO_SUCCESS = "{{ $labels.namespace }}/{{ $labels.cronjob }} has not succeeded for {{ $value | humanizeDuration }}"

SERVICES = Group(
    name="services",
    alerts=(
        Alert(
            name="MlflowDown",
            expression=f'min by (namespace, deployment) ({_AVAILABLE}{{namespace="{MLFLOW_NAMESPACE}"}}) < 1',
            wait="5m",
            severity=Severity.TICKET,
            summary=f"{_DEPLOYMENT} has {COUNT} pods: no one can see or compare runs.",
            action="Runs go on and deliver later. Look at the pod's log and at the database.",
        ),
        Alert(
            name="MlflowCleanupFailed",
            expression=_without_success(MLFLOW_CLEANUP, CLEANUP_SECONDS),
            wait="15m",
            severity=Severity.TICKET,
            summary=f"{_NO_SUCCESS}.",
            action="The log of its newest Job says whether the database is almost full, or what it could not delete.",
        ),
        Alert(
            name="MlflowBackupOld",
            expression=_without_success(MLFLOW_BACKUP, BACKUP_SECONDS),
            wait="15m",
            severity=Severity.TICKET,
            summary=f"{_NO_SUCCESS}: a loss of the database would lose all runs since.",
            action="The log of its newest Job has the error. `make backup ENV=…` makes one now.",
        ),
        Alert(
            name="MlflowRestoreDrillFailed",
            expression=_without_success(MLFLOW_RESTORE_DRILL, DRILL_SECONDS),
            wait="15m",
            severity=Severity.TICKET,
            summary=f"{_NO_SUCCESS}: nobody knows whether the backups can be restored.",
            action="The log of its newest Job lists what differs. `make restore-drill ENV=…` repeats it.",
        ),
        Alert(
            name="ControllerDown",
            expression=f'min by (namespace, deployment) ({_AVAILABLE}{{namespace=~"{_CONTROLLERS}"}}) < 1',
            wait="5m",
            severity=Severity.PAGE,
            summary=f"{_DEPLOYMENT} has {COUNT} pods.",
            action="Running jobs go on, but none is admitted, started or recovered. Look at its pods' events and logs.",
        ),
        Alert(
            name="JobSizerDown",
            expression=f"min by (namespace, deployment) ({_SIZER}) < 1",
            wait="5m",
            severity=Severity.PAGE,
            summary=f"{_DEPLOYMENT} has {COUNT} pods.",
            action="Jobs whose team has lent their GPUs are not admitted, and elastic jobs keep their size. Look at its events and log.",
        ),
        Alert(
            name="JobMetricsMissing",
            expression=f'{_RUNNING} unless on (namespace, name) label_replace({_HEADS}, "name", "$1", "training_job", "(.*)")',
            wait="10m",
            severity=Severity.TICKET,
            is_state=True,
            summary="No metrics of the running job {{ $labels.namespace }}/{{ $labels.name }}, so no alert watches it.",
            action="Prometheus's page of targets has the error of the scrape: a network policy, or a head that does not answer.",
        ),
        Alert(
            name="KubernetesMetricsMissing",
            expression="absent(kube_node_info)",
            wait="10m",
            severity=Severity.PAGE,
            is_state=True,
            summary="No metrics of kube-state-metrics, so no alert watches nodes and services.",
            action="Look at the pod of kube-state-metrics in the namespace monitoring, and at Prometheus's page of targets.",
        ),
        Alert(
            name="KueueMetricsMissing",
            expression=f'absent(up{{namespace="{KUEUE_NAMESPACE}"}} == 1)',
            wait="10m",
            severity=Severity.TICKET,
            is_state=True,
            summary="No metrics of Kueue, so no alert watches the queues.",
            action="Look at the pods of kueue-system, and at Prometheus's page of targets.",
        ),
    ),
)
"""In every environment."""

GPU_SERVICES = Group(
    name="gpu-metrics",
    alerts=(
        Alert(
            name="GpuMetricsMissing",
            expression=f"max by (node) ({GPU_NODES}) > 0 unless on (node) DCGM_FI_DEV_GPU_TEMP",
            wait="15m",
            severity=Severity.TICKET,
            summary=f"No metrics of the {COUNT} GPUs of node {{{{ $labels.node }}}}, so no alert watches them.",
            action="Look at the pod of dcgm-exporter on that node: its log, and whether it was killed for lack of memory.",
        ),
    ),
)
"""Only in environments with GPUs."""

LOGS = Group(
    name="logs",
    alerts=(
        Alert(
            name="LogsNotShipped",
            expression="sum by (pod) (rate(fluentbit_output_retries_total[5m])) > 0",
            wait="30m",
            severity=Severity.TICKET,
            summary="{{ $labels.pod }} in gpu-system cannot deliver logs ({{ $value | humanize }} retries a second), "
            "and will drop the oldest once its buffer is full.",
            action="Its log names the error: permissions of the role, the log group, or Loki's address.",
        ),
    ),
)
"""Only where logs are shipped."""

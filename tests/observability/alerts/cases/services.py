"""Cases of `observability.alerts.services` and `network`."""

from __future__ import annotations

from tests.observability.alerts.cases.case import Case, flat, later, rising, series


def _pods(namespace: str, deployment: str) -> str:
    return series("kube_deployment_status_replicas_available", namespace=namespace, deployment=deployment)


def _cron_job(name: str) -> tuple[str, str, str]:
    """Its last success, its creation, and whether it is suspended."""
    last, created, suspended = (
        series(f"kube_cronjob_{one}", namespace="mlflow", cronjob=name)
        for one in ("status_last_successful_time", "created", "spec_suspend")
    )
    return last, created, suspended


_CLEANED_UP, _CREATED, _SUSPENDED = _cron_job("mlflow-cleanup")
_BACKED_UP, _BACKUP_CREATED, _BACKUP_SUSPENDED = _cron_job("mlflow-backup")
_DRILLED, _DRILL_CREATED, _DRILL_SUSPENDED = _cron_job("mlflow-restore-drill")
_MLFLOW, _KUEUE = _pods("mlflow", "mlflow"), _pods("kueue-system", "kueue-controller-manager")
_SIZER = _pods("monitoring", "job-sizer")
_JOB = {"namespace": "vision", "name": "first"}
_RUNNING = series("kuberay_job_deployment_status", **_JOB, deployment_status="Running")
_HEAD = series("up", job="monitoring/ray-heads", namespace="vision", training_job="first")
_OTHER_HEAD = series("up", job="monitoring/ray-heads", namespace="vision", training_job="second")
_NODE = series("kube_node_info", node="n1")
_KUEUE_TARGET = series("up", namespace="kueue-system", pod="kueue-x")
_GPUS = series("kube_node_status_capacity", node="n1", resource="nvidia_com_gpu")
_TEMPERATURE = series("DCGM_FI_DEV_GPU_TEMP", node="n1", gpu="0")
_RETRIES = series("fluentbit_output_retries_total", pod="fluent-bit-x", name="cloudwatch_logs.0")
_POD = {"namespace": "vision", "pod": "first-workers-0"}
_SENT = series("container_network_transmit_bytes_total", **_POD, interface="eth0")
_EFA = series("kube_pod_container_resource_requests", **_POD, container="ray", resource="vpc_amazonaws_com_efa")
_MINUTE = 60
CASES = (
    Case(
        alert="MlflowDown",
        at=6,
        series={_MLFLOW: flat(0, 6)},
        labels={"namespace": "mlflow", "deployment": "mlflow"},
        summary="mlflow/mlflow has 0 pods: no one can see or compare runs.",
        silent={"one pod": {_MLFLOW: flat(1, 6)}, "a restart of three minutes": {_MLFLOW: "0+0x3 1+0x3"}},
    ),
    Case(
        alert="MlflowCleanupFailed",
        at=3257,
        series={_CLEANED_UP: flat(60, 3257), _CREATED: flat(0, 3257), _SUSPENDED: flat(0, 3257)},
        labels={"namespace": "mlflow", "cronjob": "mlflow-cleanup"},
        summary="mlflow/mlflow-cleanup has not succeeded for 2d 6h 16m 0s.",
        silent={
            "one night was missed": {_CLEANED_UP: flat(86_400, 3257)},
            "it is suspended": {_SUSPENDED: flat(1, 3257)},
            "it was created today and has not run yet": {_CLEANED_UP: "", _CREATED: flat(150_000, 3257)},
        },
    ),
    Case(
        alert="MlflowBackupOld",
        at=17,
        series={_BACKED_UP: flat(-107_940, 17), _BACKUP_CREATED: flat(-108_000, 17), _BACKUP_SUSPENDED: flat(0, 17)},
        labels={"namespace": "mlflow", "cronjob": "mlflow-backup"},
        summary="mlflow/mlflow-backup has not succeeded for 1d 6h 16m 0s: a loss of the database would lose all runs since.",
        silent={
            "a backup of last night": {_BACKED_UP: flat(-79_200, 17)},
            "it is suspended": {_BACKUP_SUSPENDED: flat(1, 17)},
            "it was created today and has not run yet": {_BACKED_UP: "", _BACKUP_CREATED: flat(-21_600, 17)},
        },
    ),
    Case(
        alert="MlflowRestoreDrillFailed",
        at=17,
        series={_DRILLED: flat(-691_140, 17), _DRILL_CREATED: flat(-691_200, 17), _DRILL_SUSPENDED: flat(0, 17)},
        labels={"namespace": "mlflow", "cronjob": "mlflow-restore-drill"},
        summary="mlflow/mlflow-restore-drill has not succeeded for 8d 0h 16m 0s: nobody knows whether the backups can be restored.",
        silent={
            "a drill of last Sunday": {_DRILLED: flat(-518_400, 17)},
            "it is suspended": {_DRILL_SUSPENDED: flat(1, 17)},
            "it was created this week and has not run yet": {_DRILLED: "", _DRILL_CREATED: flat(-259_200, 17)},
        },
    ),
    Case(
        alert="ControllerDown",
        at=6,
        series={_KUEUE: flat(0, 6)},
        labels={"namespace": "kueue-system", "deployment": "kueue-controller-manager"},
        summary="kueue-system/kueue-controller-manager has 0 pods.",
        silent={
            "one of two pods": {_KUEUE: flat(1, 6)},
            "a team's Deployment": {_KUEUE: "", _pods("vision", "demo"): flat(0, 6)},
        },
    ),
    Case(
        alert="JobSizerDown",
        at=6,
        series={_SIZER: flat(0, 6)},
        labels={"namespace": "monitoring", "deployment": "job-sizer"},
        summary="monitoring/job-sizer has 0 pods.",
        silent={
            "it has its pod": {_SIZER: flat(1, 6)},
            "a restart of two minutes": {_SIZER: f"{flat(1, 3)} {flat(0, 2)} {flat(1, 1)}"},
            "another program": {_SIZER: "", _pods("monitoring", "job-recorder"): flat(0, 6)},
        },
    ),
    Case(
        alert="JobMetricsMissing",
        at=11,
        series={_RUNNING: flat(1, 11), _HEAD: flat(0, 11), _OTHER_HEAD: flat(1, 11)},
        labels=_JOB,
        summary="No metrics of the running job vision/first, so no alert watches it.",
        silent={
            "its head answers": {_HEAD: flat(1, 11)},
            "three minutes after its start": {_RUNNING: later(8, flat(1, 3))},
        },
    ),
    Case(
        alert="KubernetesMetricsMissing",
        at=20,
        series={_NODE: "1+0x2 stale"},
        labels={},
        summary="No metrics of kube-state-metrics, so no alert watches nodes and services.",
        silent={"a node": {_NODE: flat(1, 20)}, "a gap of five minutes": {_NODE: "1+0x10 stale _x4 1+0x5"}},
        resolves=False,
    ),
    Case(
        alert="KueueMetricsMissing",
        at=20,
        series={_KUEUE_TARGET: "1+0x2 0+0x18"},
        labels={},
        summary="No metrics of Kueue, so no alert watches the queues.",
        silent={"one of two replicas": {series("up", namespace="kueue-system", pod="kueue-y"): flat(1, 20)}},
        resolves=False,
    ),
    Case(
        alert="GpuMetricsMissing",
        at=20,
        series={_GPUS: flat(8, 20)},
        labels={"node": "n1"},
        summary="No metrics of the 8 GPUs of node n1, so no alert watches them.",
        silent={"a GPU's temperature": {_TEMPERATURE: flat(40, 20)}},
    ),
    Case(
        alert="LogsNotShipped",
        at=40,
        series={_RETRIES: "0+30x40"},
        labels={"pod": "fluent-bit-x"},
        summary="fluent-bit-x in gpu-system cannot deliver logs (500m retries a second), "
        "and will drop the oldest once its buffer is full.",
        silent={"no retries": {_RETRIES: flat(3, 40)}, "retries for 20 minutes": {_RETRIES: "0+30x20 600+0x20"}},
    ),
    Case(
        alert="EfaFallback",
        at=30,
        series={_SENT: rising(300e6 * _MINUTE, 30), _EFA: flat(4, 30)},
        labels=_POD,
        summary="vision/first-workers-0 has EFA, and sends 300MB/s over TCP.",
        silent={
            "little over TCP": {_SENT: rising(200e6 * _MINUTE, 30)},
            "a pod without EFA": {_EFA: ""},
            "an upload of ten minutes": {_SENT: f"0+0x18 0+{300e6 * _MINUTE}x12"},
        },
    ),
)

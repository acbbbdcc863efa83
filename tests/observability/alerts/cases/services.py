"""Cases of `observability.alerts.services` and `network`."""

from __future__ import annotations

from tests.observability.alerts.cases.case import Case, flat, later, rising, series


def _pods(namespace: str, deployment: str) -> str:
    return series("kube_deployment_status_replicas_available", namespace=namespace, deployment=deployment)


def _overdue(name: str, age: str, *, last: int, recent: int, young: int, why: str = "") -> Case:
    """A CronJob whose last success was at `last`, a minute after its creation; times in seconds from the start.

    It stays silent with a `recent` success, or if it was created at `young` and has not run yet.
    """
    done, created, suspended = (
        series(f"kube_cronjob_{one}", namespace="mlflow", cronjob=name)
        for one in ("status_last_successful_time", "created", "spec_suspend")
    )
    return Case(
        at=17,
        series={done: flat(last, 17), created: flat(last - 60, 17), suspended: flat(0, 17)},
        labels={"namespace": "mlflow", "cronjob": name},
        summary=f"mlflow/{name} has not succeeded for {age}{why}.",
        silent={
            "a recent success": {done: flat(recent, 17)},
            "it is suspended": {suspended: flat(1, 17)},
            "it is new and has not run yet": {done: "", created: flat(young, 17)},
        },
    )


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
CASES = {
    "MlflowDown": Case(
        at=6,
        series={_MLFLOW: flat(0, 6)},
        labels={"namespace": "mlflow", "deployment": "mlflow"},
        summary="mlflow/mlflow has 0 pods: no one can see or compare runs.",
        silent={"one pod": {_MLFLOW: flat(1, 6)}, "a restart of three minutes": {_MLFLOW: "0+0x3 1+0x3"}},
    ),
    "MlflowCleanupFailed": _overdue("mlflow-cleanup", "2d 6h 16m 0s", last=-194_340, recent=-108_000, young=-44_400),
    "MlflowBackupOld": _overdue(
        "mlflow-backup",
        "1d 6h 16m 0s",
        last=-107_940,
        recent=-79_200,
        young=-21_600,
        why=": a loss of the database would lose all runs since",
    ),
    "MlflowRestoreDrillFailed": _overdue(
        "mlflow-restore-drill",
        "8d 0h 16m 0s",
        last=-691_140,
        recent=-518_400,
        young=-259_200,
        why=": nobody knows whether the backups can be restored",
    ),
    "ControllerDown": Case(
        at=6,
        series={_KUEUE: flat(0, 6)},
        labels={"namespace": "kueue-system", "deployment": "kueue-controller-manager"},
        summary="kueue-system/kueue-controller-manager has 0 pods.",
        silent={
            "one of two pods": {_KUEUE: flat(1, 6)},
            "a team's Deployment": {_KUEUE: "", _pods("vision", "demo"): flat(0, 6)},
        },
    ),
    "JobSizerDown": Case(
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
    "JobMetricsMissing": Case(
        at=11,
        series={_RUNNING: flat(1, 11), _HEAD: flat(0, 11), _OTHER_HEAD: flat(1, 11)},
        labels=_JOB,
        summary="No metrics of the running job vision/first, so no alert watches it.",
        silent={
            "its head answers": {_HEAD: flat(1, 11)},
            "three minutes after its start": {_RUNNING: later(8, flat(1, 3))},
        },
    ),
    "KubernetesMetricsMissing": Case(
        at=20,
        series={_NODE: "1+0x2 stale"},
        labels={},
        summary="No metrics of kube-state-metrics, so no alert watches nodes and services.",
        silent={"a node": {_NODE: flat(1, 20)}, "a gap of five minutes": {_NODE: "1+0x10 stale _x4 1+0x5"}},
        resolves=False,
    ),
    "KueueMetricsMissing": Case(
        at=20,
        series={_KUEUE_TARGET: "1+0x2 0+0x18"},
        labels={},
        summary="No metrics of Kueue, so no alert watches the queues.",
        silent={"one of two replicas": {series("up", namespace="kueue-system", pod="kueue-y"): flat(1, 20)}},
        resolves=False,
    ),
    "GpuMetricsMissing": Case(
        at=20,
        series={_GPUS: flat(8, 20)},
        labels={"node": "n1"},
        summary="No metrics of the 8 GPUs of node n1, so no alert watches them.",
        silent={"a GPU's temperature": {_TEMPERATURE: flat(40, 20)}},
    ),
    "LogsNotShipped": Case(
        at=40,
        series={_RETRIES: "0+30x40"},
        labels={"pod": "fluent-bit-x"},
        summary="fluent-bit-x in gpu-system cannot deliver logs (500m retries a second), "
        "and will drop the oldest once its buffer is full.",
        silent={"no retries": {_RETRIES: flat(3, 40)}, "retries for 20 minutes": {_RETRIES: "0+30x20 600+0x20"}},
    ),
    "EfaFallback": Case(
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
}

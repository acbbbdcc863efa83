"""How high each metric is at each moment of the recording; for a counter, how fast it grows in a second."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

from observability.metrics.inventory import CHECKPOINT_BUCKETS, STEP_BUCKETS

Labels = Mapping[str, str]


class Moment(NamedTuple):
    """A Unix time, and how much of the recording is over, from 0 to 1."""

    time: float
    share: float


Level = Callable[[Labels, Moment], float]

RESTART, SLOW_DATA, SLOW_RANK = 0.35, 0.6, 0.8
"""When the ResNet restarts, when its loader becomes slow, and when one of its ranks does."""

BUCKET_FAILS, BUCKET_WORKS = 0.4, 0.75
"""When uploads of the ResNet's checkpoints begin to fail, and when they succeed again."""

_STEPS_PER_SECOND = 3.0
_STEPS = 36_000
_SECONDS = 119 * 60
"""Of the recording."""
_SAMPLES_PER_STEP = 512
_CHECKPOINT_SECONDS = 900
_UPLOAD_SECONDS = 60

MEDIANS: Mapping[str, float] = {
    "ray_rtp_train_step_seconds": 0.31,
    "ray_rtp_train_checkpoint_stall_seconds": 0.4,
    "ray_rtp_train_checkpoint_write_seconds": 9.0,
    "ray_rtp_train_checkpoint_upload_seconds": 20.0,
    "kueue_admission_wait_time_seconds": 700.0,
}
"""Of the observations of histograms."""

BOUNDS: Mapping[str, tuple[float, ...]] = {
    "ray_rtp_train_step_seconds": STEP_BUCKETS,
    "ray_rtp_train_checkpoint_stall_seconds": CHECKPOINT_BUCKETS,
    "ray_rtp_train_checkpoint_write_seconds": CHECKPOINT_BUCKETS,
    "ray_rtp_train_checkpoint_upload_seconds": CHECKPOINT_BUCKETS,
    "kueue_admission_wait_time_seconds": (1, 10, 60, 300, 1200, 5120, 10240, 20480),
}


def level(name: str, labels: Labels, moment: Moment) -> float:
    """The level of a series, with some noise where it is not exact; 1 for a metric that the scenario does not know."""
    found = _LEVELS.get(name)
    if found is None:
        return 1.0
    noise = random.Random(f"{name}{sorted(labels.items())}{moment.time}").gauss(0, 0.03)
    value = found(labels, moment)
    return value if name.endswith(_EXACT) or name.startswith(_COUNTED) else value * (1 + noise)


_EXACT = ("_timestamp_seconds", "_step", "_steps", "_ranks", "_total", ":sum", ":max", "_bytes", "_rate")
_COUNTED = ("kube", "kueue", "cluster_", "ray_rtp_search", "ray_tasks", "ray_actors", "ray_resources")
"""Ends and beginnings of the names of what has no noise."""


def _is_vision(labels: Labels) -> bool:
    return labels.get("namespace") == "vision"


def _data_share(labels: Labels, moment: Moment) -> float:
    return 0.42 if _is_vision(labels) and moment.share > SLOW_DATA else 0.03


def _is_down(labels: Labels, moment: Moment) -> bool:
    return _is_vision(labels) and RESTART < moment.share < RESTART + 0.04


def _speed(labels: Labels, moment: Moment) -> float:
    """Share of the usual speed."""
    return 0.0 if _is_down(labels, moment) else 1 - _data_share(labels, moment)


def _part(labels: Labels, moment: Moment) -> float:
    data = _data_share(labels, moment)
    if _is_down(labels, moment):
        return 0.0
    if labels["part"] == "data":
        return data
    own = {
        "forward": 0.29,
        "backward": 0.5,
        "communication": 0.06,
        "optimizer": 0.07,
        "checkpoint": 0.015,
        "other": 0.03,
    }
    return own[labels["part"]] * (1 - data) / sum(own.values())


def _class(labels: Labels, moment: Moment) -> float:
    if _is_down(labels, moment):
        return {"detection": 0.3, "restart": 0.5, "lost": 0.2}.get(labels["class"], 0.0)
    data = _data_share(labels, moment)
    rest = {"productive": 0.88, "communication": 0.05, "checkpoint": 0.02, "evaluation": 0.03, "other": 0.02}
    return data if labels["class"] == "data" else rest.get(labels["class"], 0.0) * (1 - data)


def _rank_speed(labels: Labels, moment: Moment) -> float:
    slow = _is_vision(labels) and labels["rank"] == "3" and moment.share > SLOW_RANK
    return _SAMPLES_PER_STEP * (0.6 if slow else 1)


def _loss(labels: Labels, moment: Moment) -> float:
    return 0.9 + 6 * math.exp(-4 * moment.share) + 0.1 * len(labels["run"]) % 3 * 0.1


def _utilization(labels: Labels, moment: Moment) -> float:
    if labels["namespace"] == "gpu-system":
        return 0.0
    return 94 * _speed(labels, moment) if _is_vision(labels) else 71


def _step(moment: Moment, *, before: float) -> float:
    """The newest step some seconds before."""
    return 1000 + _STEPS * (moment.share - before / _SECONDS)


def _saw_tooth(moment: Moment) -> float:
    """Seconds since the newest checkpoint."""
    return moment.time % _CHECKPOINT_SECONDS


def _bucket_fails(labels: Labels, moment: Moment) -> bool:
    return _is_vision(labels) and BUCKET_FAILS < moment.share < BUCKET_WORKS


def _bucket_age(labels: Labels, moment: Moment) -> float:
    """Seconds since the newest upload."""
    if _bucket_fails(labels, moment):
        before = (moment.share - BUCKET_FAILS) * _SECONDS
        return before + (moment.time - before - _UPLOAD_SECONDS) % _CHECKPOINT_SECONDS
    return (moment.time - _UPLOAD_SECONDS) % _CHECKPOINT_SECONDS


def _constant(value: float) -> Level:
    return lambda _, __: value


def _of_state(**values: float) -> Level:
    return lambda labels, _: values.get(labels.get("status") or labels.get("State") or labels.get("state") or "", 0)


_OURS: Mapping[str, Level] = {
    "step": lambda _, moment: _step(moment, before=0),
    "planned_steps": _constant(50_000),
    "ranks": _constant(4),
    "last_step_timestamp_seconds": lambda labels, moment: moment.time - (90 if _is_down(labels, moment) else 1),
    "step_seconds": lambda labels, moment: _STEPS_PER_SECOND * _speed(labels, moment),
    "step_part_seconds_total": _part,
    "samples_total": lambda labels, moment: _SAMPLES_PER_STEP * _STEPS_PER_SECOND * _speed(labels, moment),
    "units_total": lambda labels, moment: _SAMPLES_PER_STEP * _STEPS_PER_SECOND * _speed(labels, moment),
    "samples_per_second": lambda labels, moment: _SAMPLES_PER_STEP * _STEPS_PER_SECOND * _speed(labels, moment),
    "rank_samples_per_second": _rank_speed,
    "gpu_memory_bytes": lambda labels, _: (14 if labels["state"] == "allocated" else 18) * 2**30,
    "loss": _loss,
    "gradient_norm": lambda _, moment: 0.8 + 2 * math.exp(-3 * moment.share),
    "learning_rate": lambda _, moment: 0.05 * (1 + math.cos(math.pi * moment.share)),
    "nonfinite_steps_total": _constant(0.001),
    "evaluation_loss": lambda labels, moment: 0.1 + _loss(labels, moment),
    "evaluation_metric": lambda _, moment: 0.76 * (1 - math.exp(-4 * moment.share)),
    "checkpoints_total": _constant(1 / _CHECKPOINT_SECONDS),
    "checkpoint_stall_seconds": _constant(1 / _CHECKPOINT_SECONDS),
    "checkpoint_write_seconds": _constant(1 / _CHECKPOINT_SECONDS),
    "checkpoint_bytes": _constant(306 * 2**20),
    "checkpoint_step": lambda _, moment: _step(moment, before=_saw_tooth(moment)),
    "checkpoint_timestamp_seconds": lambda _, moment: moment.time - _saw_tooth(moment),
    "checkpoint_uploads_total": lambda labels, moment: 0 if _bucket_fails(labels, moment) else 1 / _CHECKPOINT_SECONDS,
    "checkpoint_upload_seconds": _constant(1 / _CHECKPOINT_SECONDS),
    "checkpoint_upload_failures_total": lambda labels, moment: 1 / 70 if _bucket_fails(labels, moment) else 0,
    "remote_checkpoint_step": lambda labels, moment: _step(
        moment, before=_bucket_age(labels, moment) + _UPLOAD_SECONDS
    ),
    "remote_checkpoint_timestamp_seconds": lambda labels, moment: moment.time - _bucket_age(labels, moment),
    "checkpoints_refused_total": _constant(0),
    "restarts_total": lambda labels, moment: (
        1 / 60 if _is_vision(labels) and 0 <= moment.share - RESTART < 0.0028 else 0
    ),
    "lost_steps_total": lambda labels, moment: (
        10.0 if _is_vision(labels) and 0 <= moment.share - RESTART < 0.0028 else 0
    ),
    "wall_seconds_total": _class,
    "repeated_seconds_total": lambda labels, moment: 0.2 if _is_down(labels, moment) else 0,
    "cost_dollars_total": lambda labels, moment: 0.004 * _class(labels, moment),
    "repeated_dollars_total": lambda labels, moment: 0.0008 if _is_down(labels, moment) else 0,
    "rank_communication_seconds_total": lambda labels, moment: 0.06 * _speed(labels, moment),
    "flops_per_second": lambda labels, moment: 74e12 * _speed(labels, moment),
    "mfu_ratio": lambda labels, moment: 0.26 * _speed(labels, moment),
    "gpu_utilization_ratio": lambda labels, moment: 0.94 * _speed(labels, moment),
    "spool_backlog_bytes": _constant(40_000),
}

_SEARCH: Mapping[str, Level] = {
    "planned_trials": _constant(16),
    "trials": lambda labels, moment: round(
        {"running": 3, "done": 3 * moment.share, "stopped": 6 * moment.share, "failed": moment.share}[labels["status"]]
    ),
    "best": lambda _, moment: 0.92 - 0.3 * math.exp(-6 * moment.share),
    "worker_seconds": lambda _, moment: 40_000 * moment.share,
    "time_left_seconds": lambda _, moment: 9000 * (1.05 - moment.share),
    "last_evaluation_timestamp_seconds": lambda _, moment: moment.time - moment.time % 240,
}

_RAY: Mapping[str, Level] = {
    "node_cpu_utilization": lambda labels, moment: 98 if _data_share(labels, moment) > 0.3 else 41,
    "node_mem_used": lambda _, moment: (30 + 12 * moment.share) * 2**30,
    "node_mem_total": _constant(64 * 2**30),
    "node_disk_utilization_percentage": lambda _, moment: 30 + 20 * moment.share,
    "node_disk_io_read_speed": lambda labels, moment: 180e6 * _speed(labels, moment),
    "node_disk_io_write_speed": _constant(3e6),
    "node_network_receive_speed": lambda labels, moment: 700e6 * _speed(labels, moment),
    "node_network_send_speed": lambda labels, moment: 640e6 * _speed(labels, moment),
    "object_store_memory": lambda labels, _: 2**28 if labels["Location"] == "MMAP_SHM" else 2**20,
    "tasks": _of_state(RUNNING=1),
    "actors": _of_state(ALIVE=3, DEAD=2),
    "resources": lambda labels, _: (2 if labels["Name"] == "GPU" else 8) if labels["State"] == "USED" else 1,
    "memory_manager_worker_eviction_total": _constant(0),
}

_GPU: Mapping[str, Level] = {
    "DEV_GPU_UTIL": _utilization,
    "DEV_GPU_TEMP": lambda labels, moment: 38 + 0.4 * _utilization(labels, moment),
    "DEV_POWER_USAGE": lambda labels, moment: 60 + 2.2 * _utilization(labels, moment),
    "DEV_SM_CLOCK": lambda labels, moment: 1695 if _utilization(labels, moment) else 210,
    "DEV_FB_USED": lambda labels, moment: 19_000 if _utilization(labels, moment) else 4,
    "DEV_FB_FREE": lambda labels, moment: 4_000 if _utilization(labels, moment) else 22_996,
    "DEV_POWER_VIOLATION": lambda labels, moment: 2e6 * _utilization(labels, moment),
    "DEV_THERMAL_VIOLATION": _constant(0),
    "DEV_ECC_DBE_VOL_TOTAL": _constant(0),
    "DEV_ECC_SBE_VOL_TOTAL": lambda labels, _: 0.001 if labels["node"] == "gpu-b" else 0,
    "DEV_UNCORRECTABLE_REMAPPED_ROWS": _constant(0),
    "DEV_CORRECTABLE_REMAPPED_ROWS": _constant(0),
    "DEV_ROW_REMAP_FAILURE": _constant(0),
    "DEV_PCIE_REPLAY_COUNTER": _constant(0.002),
    "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": _constant(0),
    "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": _constant(0),
    "DEV_NVLINK_BANDWIDTH_TOTAL": lambda labels, moment: 1e8 * _utilization(labels, moment),
    "PROF_SM_ACTIVE": lambda labels, moment: 0.008 * _utilization(labels, moment),
    "PROF_PIPE_TENSOR_ACTIVE": lambda labels, moment: 0.0045 * _utilization(labels, moment),
    "PROF_DRAM_ACTIVE": lambda labels, moment: 0.006 * _utilization(labels, moment),
    "PROF_PCIE_TX_BYTES": lambda labels, moment: 2e6 * _utilization(labels, moment),
    "PROF_PCIE_RX_BYTES": lambda labels, moment: 9e6 * _utilization(labels, moment),
}

_PLATFORM: Mapping[str, Level] = {
    "kueue_pending_workloads": lambda labels, moment: round(
        (3 + 2 * math.sin(9 * moment.share)) if labels["status"] == "active" else moment.share
    ),
    "kueue_admission_wait_time_seconds": _constant(1 / 1200),
    "kueue_admitted_workloads_total": _constant(1 / 1200),
    "kueue_evicted_workloads_total": _constant(1 / 20_000),
    "kueue_admitted_active_workloads": _constant(2),
    "kueue_cluster_queue_resource_usage": lambda labels, _: 4 if labels["cluster_queue"] == "vision" else 2,
    "kueue_cluster_queue_nominal_quota": _constant(3),
    "cluster_autoscaler_nodes_count": _of_state(ready=7, notStarted=1),
    "cluster_autoscaler_unschedulable_pods_count": lambda _, moment: round(1 + math.sin(9 * moment.share)),
    "cluster_autoscaler_failed_scale_ups_total": _constant(1 / 3000),
    "DCGM_EXP_XID_ERRORS_COUNT": lambda labels, moment: float(
        (labels["node"], labels["gpu"]) == ("gpu-b", "1") and 0.7 < moment.share < 0.72
    ),
    "kube_node_status_capacity": _constant(2),
    "kube_node_status_allocatable": lambda labels, _: 1 if labels["node"] == "gpu-d" else 2,
    "kube_pod_container_resource_requests": lambda labels, _: 2 if "worker" in labels["pod"] else 0,
    "kube_pod_status_unschedulable": lambda _, moment: round(0.5 + 0.5 * math.sin(9 * moment.share)),
    "kuberay_job_deployment_status": lambda labels, _: float(labels["deployment_status"] == "Running"),
    "fluentbit_output_retries_total": _constant(0.01),
    "prometheus_tsdb_head_series": lambda _, moment: 120_000 + 20_000 * moment.share,
    "prometheus_tsdb_head_samples_appended_total": _constant(4_100),
    "prometheus_rule_evaluation_failures_total": _constant(0),
    "node:nvidia_gpus_requested:sum": lambda labels, _: 0 if labels["node"] == "gpu-d" else 2,
    "node:gpu_node_dollars_per_hour:price": _constant(5.672),
    "node:idle_gpu_node_dollars_per_hour:price": lambda labels, _: 5.672 if labels["node"] == "gpu-d" else 0,
    "team:dollars:budget1d": _constant(400),
    "team:dollars:sum1d": lambda labels, moment: (350 + 200 * moment.share) if labels["team"] == "vision" else 228,
    "run:ray_rtp_train_exposed_communication:ratio_rate10m": lambda _, moment: 0.05 + 0.01 * math.sin(9 * moment.share),
    "team:ray_rtp_train_cost_dollars_per_hour:rate1h": lambda labels, _: 24.0 if labels["team"] == "vision" else 9.5,
    "team:ray_rtp_train_lost_dollars_per_hour:rate1h": lambda labels, moment: (
        24 * _data_share({"namespace": labels["team"]}, moment)
    ),
    "training_job:container_network_receive_bytes:rate5m": _constant(9e6),
    "training_job:container_network_transmit_bytes:rate5m": _constant(4e6),
    "run:ray_rtp_train_lost_time:ratio_rate1h": lambda labels, moment: 0.08 + _data_share(labels, moment),
    "run:ray_rtp_train_restarts:max": lambda labels, moment: float(_is_vision(labels) and moment.share >= RESTART),
    "run:ray_rtp_train_samples_per_second:avg10m": lambda labels, moment: 1500 * (1 - _data_share(labels, moment)),
}

_LEVELS: Mapping[str, Level] = {
    **{f"ray_rtp_train_{name}": found for name, found in _OURS.items()},
    **{f"ray_rtp_search_{name}": found for name, found in _SEARCH.items()},
    **{f"ray_{name}": found for name, found in _RAY.items()},
    **{f"DCGM_FI_{name}": found for name, found in _GPU.items()},
    **_PLATFORM,
}

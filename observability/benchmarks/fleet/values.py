"""Values that move as those of a healthy fleet: counters grow, gauges wander, and no alert fires.

How well samples compress depends on how they change, so Prometheus must not be fed with constants. Each movement has a few dozen walkers,
which all series with that movement share: a page is then joined from texts that exist, and the server needs little of the machine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from observability.benchmarks.fleet.axes import Labels
from observability.metrics.external.model import ScrapedMetric

WALKERS = 61
"""Different courses of a movement; a prime, so that neighbouring series differ."""

TICK_SECONDS = 5.0
"""Values change so often, which is more often than anything is scraped."""

Kind = Literal["constant", "counter", "seconds", "share", "whole", "now"]


@dataclass(frozen=True)
class Motion:
    """How a value moves.

    Attributes:
        kind: `constant`, `counter` (whole numbers that grow by `size` per second), `seconds` (the same with fractions), `share`
            (wanders around `size` with all its digits), `whole` (a whole number that wanders around `size`), `now` (Unix time).
        size: see there; the value itself of a constant.
    """

    kind: Kind
    size: float = 1.0


_ZERO, _ONE, _NOW = Motion("constant", 0.0), Motion("constant"), Motion("now")

_BY_NAME: Mapping[str, Motion] = {
    # Faults that did not happen.
    **dict.fromkeys(
        (
            "ray_rtp_train_nonfinite_steps_total",
            "ray_rtp_train_restarts_total",
            "ray_rtp_train_lost_steps_total",
            "ray_rtp_train_checkpoint_upload_failures_total",
            "ray_rtp_train_checkpoints_refused_total",
            "ray_rtp_train_repeated_seconds_total",
            "ray_rtp_train_repeated_dollars_total",
            "ray_rtp_train_spool_backlog_bytes",
            "ray_memory_manager_worker_eviction_total",
            "DCGM_FI_DEV_POWER_VIOLATION",
            "DCGM_FI_DEV_THERMAL_VIOLATION",
            "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
            "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
            "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
            "DCGM_FI_DEV_ROW_REMAP_FAILURE",
            "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
            "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
            "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
            "kueue_pending_workloads",
            "kueue_evicted_workloads_total",
            "cluster_autoscaler_failed_scale_ups_total",
            "cluster_autoscaler_unschedulable_pods_count",
            "kube_cronjob_spec_suspend",
            "fluentbit_output_retries_total",
        ),
        _ZERO,
    ),
    # Times.
    **dict.fromkeys(
        (
            "ray_rtp_train_last_step_timestamp_seconds",
            "ray_rtp_train_checkpoint_timestamp_seconds",
            "ray_rtp_train_remote_checkpoint_timestamp_seconds",
            "ray_rtp_search_last_evaluation_timestamp_seconds",
            "kube_cronjob_status_last_successful_time",
        ),
        _NOW,
    ),
    # What stays as it is.
    "ray_rtp_train_planned_steps": Motion("constant", 1e9),
    "ray_rtp_train_ranks": Motion("constant", 24),
    "ray_rtp_train_parameters": Motion("constant", 7_241_732_096),
    "ray_rtp_train_checkpoint_step": Motion("constant", 1000),
    "ray_rtp_train_remote_checkpoint_step": Motion("constant", 1000),
    "ray_node_mem_total": Motion("constant", 2e12),
    "DCGM_FI_DEV_SM_CLOCK": Motion("constant", 1980),
    "kube_cronjob_created": Motion("constant", 1.79e9),
    # What is not around one.
    "ray_rtp_train_step": Motion("counter", 2),
    "ray_rtp_train_samples_total": Motion("counter", 500),
    "ray_rtp_train_units_total": Motion("counter", 1_000_000),
    "ray_rtp_train_step_part_seconds_total": Motion("seconds", 0.18),
    "ray_rtp_train_rank_communication_seconds_total": Motion("seconds", 0.1),
    "ray_rtp_train_cost_dollars_total": Motion("seconds", 0.002),
    "ray_rtp_train_loss": Motion("share", 2.3),
    "ray_node_mem_used": Motion("whole", 4e11),
    "ray_node_disk_utilization_percentage": Motion("share", 40),
    "ray_node_cpu_utilization": Motion("share", 60),
    "ray_node_network_receive_speed": Motion("share", 1e6),
    "ray_node_network_send_speed": Motion("share", 1e6),
    "DCGM_FI_DEV_GPU_TEMP": Motion("whole", 62),
    "DCGM_FI_DEV_GPU_UTIL": Motion("whole", 94),
    "DCGM_FI_DEV_FB_FREE": Motion("constant", 16_384),
    "DCGM_FI_DEV_FB_USED": Motion("whole", 65_000),
    "DCGM_FI_DEV_POWER_USAGE": Motion("share", 610),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": Motion("counter", 80_000_000_000),
    "DCGM_FI_PROF_PCIE_TX_BYTES": Motion("whole", 3e9),
    "DCGM_FI_PROF_PCIE_RX_BYTES": Motion("whole", 3e9),
    "container_network_receive_bytes_total": Motion("counter", 1_000_000),
    "container_network_transmit_bytes_total": Motion("counter", 1_000_000),
}

_BY_LABEL: Mapping[tuple[str, str], Mapping[str, Motion]] = {
    ("ray_rtp_train_step_part_seconds_total", "part"): {
        "data": Motion("seconds", 0.05),
        "checkpoint": Motion("seconds", 0.01),
        "other": Motion("seconds", 0.04),
    },
    ("ray_rtp_train_wall_seconds_total", "class"): {"productive": Motion("seconds", 0.9)},
    ("ray_rtp_train_cost_dollars_total", "class"): {"productive": Motion("seconds", 0.2)},
    ("ray_rtp_search_trials", "status"): {"failed": _ZERO},
    ("kueue_cluster_queue_status", "status"): dict.fromkeys(("inadmissible", "pending", "terminating"), _ZERO),
    ("kube_node_status_condition", "status"): {"false": _ZERO, "unknown": _ZERO},
    ("kube_node_status_condition", "condition"): dict.fromkeys(
        ("MemoryPressure", "DiskPressure", "PIDPressure"), _ZERO
    ),
    ("kube_pod_status_phase", "phase"): dict.fromkeys(("Pending", "Succeeded", "Failed", "Unknown"), _ZERO),
}
"""Motion of the series with some value of a label; it goes before that of the metric."""


def motion_of(metric: ScrapedMetric, labels: Labels) -> Motion:
    """How the value of a series moves; that of a histogram is the motion of its count."""
    for (name, label), motions in _BY_LABEL.items():
        if name == metric.name and labels.get(label) in motions:
            return motions[labels[label]]
    if named := _BY_NAME.get(metric.name):
        return named
    if metric.name.startswith(("kube_", "kueue_cluster_queue", "kuberay_", "cluster_autoscaler_")):
        return _ONE
    if metric.kind == "counter":
        return Motion("seconds", 0.02) if metric.unit in {"seconds", "dollars"} else Motion("counter")
    return Motion("counter", 2) if metric.kind == "histogram" else Motion("share")


class Values:
    """The texts of all values that move, at the present time."""

    def __init__(self) -> None:
        self._random = random.Random(0)  # noqa: S311
        self._sums: dict[Motion, list[float]] = {}
        self._changed = time.monotonic()
        self.texts: dict[Motion, list[bytes]] = {}
        self.tick = 0

    def add(self, motion: Motion) -> None:
        """Have values for a motion."""
        if motion not in self._sums and motion.kind != "constant":
            self._sums[motion] = [(1000 + 100 * walker) * motion.size for walker in range(WALKERS)]
            self.texts[motion] = [_text(one) for one in self._moved(motion, 0.0)]

    def advance(self) -> None:
        """Let the values move on, if it is time."""
        elapsed = time.monotonic() - self._changed
        if elapsed < TICK_SECONDS:
            return
        self._changed += elapsed
        self.tick += 1
        for motion in self._sums:
            # The lists stay the same: pages refer to them.
            self.texts[motion][:] = [_text(one) for one in self._moved(motion, elapsed)]

    def _moved(self, motion: Motion, elapsed: float) -> list[float]:
        draw, sums = self._random.random, self._sums[motion]
        match motion.kind:
            case "counter" | "seconds":
                sums[:] = [one + motion.size * elapsed * (0.9 + 0.2 * draw()) for one in sums]
                return [float(int(one)) for one in sums] if motion.kind == "counter" else list(sums)
            case "now":
                return [round(time.time() - draw(), 3) for _ in sums]
            case "whole":
                return [float(round(motion.size * (0.97 + 0.06 * draw()))) for _ in sums]
            case _:
                return [motion.size * (0.97 + 0.06 * draw()) for _ in sums]


def _text(value: float) -> bytes:
    return repr(int(value) if value.is_integer() else value).encode()

"""Metrics of DCGM exporter. `python -m observability.metrics.dcgm_counters` writes the list of what it exports from this one.

The labels `namespace`, `pod` and `container` are those of the pod that uses the GPU, or the exporter's own where none does. `node` comes
from the scrape, because the exporter's own label for it changed its name.
"""

from __future__ import annotations

from observability.metrics.external.model import SERVICE_MONITOR_LABELS, ScrapedMetric, Source
from observability.metrics.inventory import Kind

_COUNTERS = Source(
    component="DCGM exporter",
    project="NVIDIA/dcgm-exporter",
    version="4.8.2",
    file="etc/default-counters.csv, internal/pkg/rendermetrics/render_metrics.go",
    target_labels=(*SERVICE_MONITOR_LABELS, "node"),
)
_XIDS = Source(
    component="DCGM exporter",
    project="NVIDIA/dcgm-exporter",
    version="4.8.2",
    file="internal/pkg/collector/xid_collector.go",
    target_labels=(*SERVICE_MONITOR_LABELS, "node"),
)
_LABELS = ("gpu", "device", "modelName")


def _dcgm(name: str, kind: Kind, text: str, *, unit: str = "") -> ScrapedMetric:
    return ScrapedMetric(name=f"DCGM_FI_DEV_{name}", kind=kind, unit=unit, help=text, labels=_LABELS, source=_COUNTERS)


def _profiled(name: str, text: str, *, unit: str = "") -> ScrapedMetric:
    """A gauge of DCGM's profiling module; a share from 0 to 1 if it has no unit."""
    return ScrapedMetric(
        name=f"DCGM_FI_PROF_{name}", kind="gauge", unit=unit, help=text, labels=_LABELS, source=_COUNTERS
    )


GPU_METRICS = (
    ScrapedMetric(
        name="DCGM_EXP_XID_ERRORS_COUNT",
        kind="gauge",
        help="XIDs within the exporter's window of five minutes, by code.",
        labels=(*_LABELS, "xid"),
        source=_XIDS,
    ),
    _dcgm("GPU_TEMP", "gauge", "GPU temperature.", unit="celsius"),
    _dcgm("POWER_VIOLATION", "counter", "Time throttled by the power limit.", unit="nanoseconds"),
    _dcgm("THERMAL_VIOLATION", "counter", "Time throttled by temperature.", unit="nanoseconds"),
    _dcgm("GPU_UTIL", "gauge", "Share of time in which a kernel ran, from 0 to 100.", unit="percent"),
    _dcgm("FB_FREE", "gauge", "Free memory.", unit="mebibytes"),
    _dcgm("FB_USED", "gauge", "Used memory.", unit="mebibytes"),
    _dcgm("ECC_DBE_VOL_TOTAL", "counter", "Uncorrected memory errors since the driver was loaded."),
    _dcgm("UNCORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped for uncorrected errors."),
    _dcgm("ROW_REMAP_FAILURE", "gauge", "1 if a row could not be remapped."),
    _dcgm("PCIE_REPLAY_COUNTER", "counter", "Retried PCIe packets."),
    _dcgm("NVLINK_REPLAY_ERROR_COUNT_TOTAL", "counter", "Replays of NVLink."),
    _dcgm("NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "counter", "Recoveries of NVLink."),
    _dcgm("ECC_SBE_VOL_TOTAL", "counter", "Corrected memory errors since the driver was loaded."),
    _dcgm("CORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped for corrected errors."),
    _dcgm("POWER_USAGE", "gauge", "Power draw.", unit="watts"),
    _dcgm("SM_CLOCK", "gauge", "Clock of the multiprocessors.", unit="megahertz"),
    _dcgm("NVLINK_BANDWIDTH_TOTAL", "counter", "Traffic over all lanes of NVLink.", unit="bytes"),
    _profiled("SM_ACTIVE", "Share of cycles in which a multiprocessor had a warp."),
    _profiled("PIPE_TENSOR_ACTIVE", "Share of cycles in which the tensor cores were active."),
    _profiled("DRAM_ACTIVE", "Share of cycles in which memory sent or received."),
    _profiled("PCIE_TX_BYTES", "Bytes per second sent over PCIe.", unit="bytes_per_second"),
    _profiled("PCIE_RX_BYTES", "Bytes per second received over PCIe.", unit="bytes_per_second"),
)

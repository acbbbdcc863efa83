"""Rules about the hardware of GPUs: XIDs, memory errors, heat, power, links.

XID codes and their meaning: NVIDIA, "XID Errors". The exporter counts them within five minutes; DCGM's own gauge keeps the last code
for ever.
"""

from __future__ import annotations

from observability.alerts.expressions import COUNT
from observability.alerts.model import Alert, Group, Severity

HARDWARE_XIDS = (48, 62, 64, 74, 79, 95, 119, 120)
"""The GPU needs a reset or is lost: uncorrected memory error, halted or stuck firmware, failed row remapping, NVLink, off the bus."""

CONTAINED_XIDS = (63, 92, 94)
"""Memory errors that were contained: only the process that used the memory ends."""

APPLICATION_XIDS = (13, 31, 43)
"""Usually a fault of the program. 45 is left out: it follows every process that is killed."""

HOT_CELSIUS = 85
"""Threshold of the critical alert of SageMaker HyperPod; GPUs slow down a few degrees above."""

HEAT_SHARE = 0.1
"""Share of time throttled by heat; cooling that works leaves none."""

POWER_SHARE = 0.5
"""Share of time throttled by the power limit; some is normal under full load."""

REPLAYS_PER_HOUR = 10
"""Of NVLink; HyperPod's threshold. Single ones are corrected without effect."""

PCIE_REPLAYS_PER_HOUR = 100
"""Single ones are corrected without effect."""

FULL_SHARE = 0.97
"""Memory in use: the next larger batch, or fragmentation, ends the run."""

_GPU = "node, gpu"
_TEXT = "GPU {{ $labels.gpu }} of node {{ $labels.node }}"
_OWNER = f"{_TEXT}, used by {{{{ $labels.namespace }}}}/{{{{ $labels.pod }}}}"
_SECOND = 1_000_000_000
"""Nanoseconds."""


def _xids(codes: tuple[int, ...]) -> str:
    pattern = "|".join(map(str, codes))
    return f'max by ({_GPU}, xid) (max_over_time(DCGM_EXP_XID_ERRORS_COUNT{{xid=~"{pattern}"}}[10m])) > 0'


def _grown(metric: str, window: str) -> str:
    return f"sum by ({_GPU}) (increase(DCGM_FI_DEV_{metric}[{window}]))"


def _throttled(cause: str) -> str:
    return f"sum by ({_GPU}) (rate(DCGM_FI_DEV_{cause}_VIOLATION[10m])) / {_SECOND}"


_XIDS = (
    Alert(
        name="GpuXidHardware",
        expression=_xids(HARDWARE_XIDS),
        wait="0m",
        severity=Severity.PAGE,
        summary=f"XID {{{{ $labels.xid }}}} ({COUNT} times) on {_TEXT}: the GPU needs a reset or is lost.",
        action="Take the node out of service, restart the job elsewhere, then terminate the instance.",
    ),
    Alert(
        name="GpuXidContained",
        expression=_xids(CONTAINED_XIDS),
        wait="0m",
        severity=Severity.TICKET,
        summary=f"XID {{{{ $labels.xid }}}} ({COUNT} times) on {_TEXT}: a contained memory error.",
        action="The run restarts by itself. Replace the node if it happens again within days.",
    ),
    Alert(
        name="GpuXidApplication",
        expression=_xids(APPLICATION_XIDS),
        wait="0m",
        severity=Severity.INFO,
        summary=f"XID {{{{ $labels.xid }}}} ({COUNT} times) on {_TEXT}: usually a fault of the program.",
        action="Look for an illegal memory access in the job's log; on many nodes at once it is not the hardware.",
    ),
)

_MEMORY = (
    Alert(
        name="GpuMemoryErrorUncorrected",
        expression=f"{_grown('ECC_DBE_VOL_TOTAL', '1h')} > 0",
        wait="0m",
        severity=Severity.PAGE,
        summary=f"{COUNT} uncorrected memory errors in an hour on {_TEXT}.",
        action="Results since then may be wrong: resume the run from a checkpoint before it, on another node.",
    ),
    Alert(
        name="GpuRowsRemapped",
        expression=f"{_grown('UNCORRECTABLE_REMAPPED_ROWS', '1d')} > 0",
        wait="0m",
        severity=Severity.TICKET,
        summary=f"{COUNT} rows remapped for uncorrected errors in a day on {_TEXT}.",
        action="The remapping takes effect when the GPU is reset: restart the node once no job runs on it.",
    ),
    Alert(
        name="GpuRowRemapFailed",
        expression=f"max by ({_GPU}) (DCGM_FI_DEV_ROW_REMAP_FAILURE) > 0",
        wait="0m",
        severity=Severity.PAGE,
        is_state=True,
        summary=f"Rows can no longer be remapped on {_TEXT}.",
        action="The GPU is to be replaced: take the node out of service and terminate the instance.",
    ),
    Alert(
        name="GpuMemoryAlmostFull",
        expression=f"max by ({_GPU}, namespace, pod) (DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)) "
        f"> {FULL_SHARE}",
        wait="15m",
        severity=Severity.INFO,
        summary=f"{{{{ $value | humanizePercentage }}}} of the memory is in use on {_OWNER}.",
        action="Use a smaller micro-batch, activation checkpointing or sharding before the run fails for lack of memory.",
    ),
)

_POWER = (
    Alert(
        name="GpuHot",
        expression=f"max by ({_GPU}) (DCGM_FI_DEV_GPU_TEMP) > {HOT_CELSIUS}",
        wait="5m",
        severity=Severity.TICKET,
        summary=f"{{{{ $value | humanize }}}} degrees Celsius on {_TEXT}.",
        action="Compare with the node's other GPUs. Replace the node if only one is hot.",
    ),
    Alert(
        name="GpuThrottledByHeat",
        expression=f"{_throttled('THERMAL')} > {HEAT_SHARE}",
        wait="10m",
        severity=Severity.TICKET,
        summary=f"Throttled by heat for {{{{ $value | humanizePercentage }}}} of the time: {_TEXT}.",
        action="All ranks wait for it: restart the job without the node, and terminate the instance.",
    ),
    Alert(
        name="GpuThrottledByPower",
        expression=f"{_throttled('POWER')} > {POWER_SHARE}",
        wait="30m",
        severity=Severity.INFO,
        summary=f"Throttled by the power limit for {{{{ $value | humanizePercentage }}}} of the time: {_TEXT}.",
        action="Normal under full load on all GPUs alike; on a single one compare its power and clocks with the others.",
    ),
)

_LINKS = (
    Alert(
        name="GpuNvlinkRecoveries",
        expression=f"{_grown('NVLINK_RECOVERY_ERROR_COUNT_TOTAL', '1h')} > 0",
        wait="0m",
        severity=Severity.TICKET,
        summary=f"{COUNT} recoveries of NVLink in an hour on {_TEXT}.",
        action="The link was lost for a moment. Take the node out of service once its job has ended.",
    ),
    Alert(
        name="GpuNvlinkReplays",
        expression=f"{_grown('NVLINK_REPLAY_ERROR_COUNT_TOTAL', '1h')} > {REPLAYS_PER_HOUR}",
        wait="0m",
        severity=Severity.TICKET,
        summary=f"{COUNT} replays of NVLink in an hour on {_TEXT}.",
        action="The link is slow. Compare the job's all-reduce time with other nodes; replace the node if it is longer.",
    ),
    Alert(
        name="GpuPcieReplays",
        expression=f"{_grown('PCIE_REPLAY_COUNTER', '1h')} > {PCIE_REPLAYS_PER_HOUR}",
        wait="0m",
        severity=Severity.TICKET,
        summary=f"{COUNT} retried PCIe packets in an hour on {_TEXT}.",
        action="Copies between host and GPU are slow. Replace the node if the job's data share grows.",
    ),
)

GPU = Group(name="gpu-hardware", alerts=(*_XIDS, *_MEMORY, *_POWER, *_LINKS))
"""Only in environments with GPUs."""

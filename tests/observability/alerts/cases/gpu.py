"""Cases of `observability.alerts.gpu`."""

from __future__ import annotations

from tests.observability.alerts.cases.case import GPU_LABELS, GPU_TEXT, Case, Series, flat, later, of_gpu, rising


def _xid(code: str, meaning: str, other: str) -> Case:
    first, second = (of_gpu("EXP_XID_ERRORS_COUNT", xid=one) for one in (code, other))
    return Case(
        at=2,
        series={first: flat(1, 2)},
        labels={**GPU_LABELS, "xid": code},
        summary=f"XID {code} (1 times) on {GPU_TEXT}: {meaning}.",
        silent={"none in the window": {first: flat(0, 2)}, "an XID of another class": {first: "", second: flat(1, 2)}},
    )


def _counter(metric: str, grown: int, text: str, *, limit: int, silent: Series | None = None) -> Case:
    counter, window = of_gpu(f"FI_DEV_{metric}"), 1440 if "day" in text else 60
    before = window + 10
    # `increase` extrapolates from the first sample after the window's start. Prometheus before 3 also counts one at the very start.
    begin = before + 5 - window + 1
    shown = grown * window / (window - 1)
    return Case(
        at=before + 5,
        series={counter: later(begin, f"7+0x{before - begin} {7 + grown}+0x4")},
        labels=GPU_LABELS,
        summary=f"{shown:.0f} {text} on {GPU_TEXT}.",
        silent={
            "at the limit": silent or {counter: f"7+0x{before} {7 + limit}+0x4"},
            "the driver is loaded again": {counter: f"7+0x{before} 0+0x4"},
            "errors of the past": {counter: flat(7 + grown, before + 5)},
        },
    )


_USED, _FREE = (of_gpu(f"FI_DEV_FB_{state}", namespace="vision", pod="first-w1") for state in ("USED", "FREE"))
_HEAT, _POWER = of_gpu("FI_DEV_THERMAL_VIOLATION"), of_gpu("FI_DEV_POWER_VIOLATION")
_TEMPERATURE, _REMAPPING = of_gpu("FI_DEV_GPU_TEMP"), of_gpu("FI_DEV_ROW_REMAP_FAILURE")
_SECOND = 1_000_000_000

CASES = {
    "GpuXidHardware": _xid("79", "the GPU needs a reset or is lost", "31"),
    "GpuXidContained": _xid("94", "a contained memory error", "79"),
    "GpuXidApplication": _xid("31", "usually a fault of the program", "45"),
    "GpuMemoryErrorUncorrected": _counter("ECC_DBE_VOL_TOTAL", 1, "uncorrected memory errors in an hour", limit=0),
    "GpuRowsRemapped": _counter(
        "UNCORRECTABLE_REMAPPED_ROWS", 1, "rows remapped for uncorrected errors in a day", limit=0
    ),
    "GpuRowRemapFailed": Case(
        at=1,
        series={_REMAPPING: flat(1, 1)},
        labels=GPU_LABELS,
        summary=f"Rows can no longer be remapped on {GPU_TEXT}.",
        silent={"none has failed": {_REMAPPING: flat(0, 1)}},
    ),
    "GpuMemoryAlmostFull": Case(
        at=20,
        series={_USED: flat(98, 20), _FREE: flat(2, 20)},
        labels={**GPU_LABELS, "namespace": "vision", "pod": "first-w1"},
        summary=f"98% of the memory is in use on {GPU_TEXT}, used by vision/first-w1.",
        silent={"at the limit": {_USED: flat(97, 20), _FREE: flat(3, 20)}},
    ),
    "GpuHot": Case(
        at=6,
        series={_TEMPERATURE: flat(86, 6)},
        labels=GPU_LABELS,
        summary=f"86 degrees Celsius on {GPU_TEXT}.",
        silent={"at the limit": {_TEMPERATURE: flat(85, 6)}, "for three minutes": {_TEMPERATURE: "80+0x3 90+0x3"}},
    ),
    "GpuThrottledByHeat": Case(
        at=25,
        series={_HEAT: rising(12 * _SECOND, 25)},
        labels=GPU_LABELS,
        summary=f"Throttled by heat for 20% of the time: {GPU_TEXT}.",
        silent={
            "less than the limit": {_HEAT: rising(5 * _SECOND, 25)},
            "the driver is loaded again": {_HEAT: f"{900 * _SECOND}+0x12 0+0x13"},
        },
    ),
    "GpuThrottledByPower": Case(
        at=45,
        series={_POWER: rising(36 * _SECOND, 45)},
        labels=GPU_LABELS,
        summary=f"Throttled by the power limit for 60% of the time: {GPU_TEXT}.",
        silent={"less than the limit": {_POWER: rising(29 * _SECOND, 45)}},
    ),
    "GpuNvlinkRecoveries": _counter("NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 1, "recoveries of NVLink in an hour", limit=0),
    "GpuNvlinkReplays": _counter("NVLINK_REPLAY_ERROR_COUNT_TOTAL", 20, "replays of NVLink in an hour", limit=9),
    "GpuPcieReplays": _counter("PCIE_REPLAY_COUNTER", 200, "retried PCIe packets in an hour", limit=98),
}

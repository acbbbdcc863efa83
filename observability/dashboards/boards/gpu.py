"""GPUs: how busy they are, whether heat or power slows them, and whether one is about to fail."""

from __future__ import annotations

from observability.alerts.cost import IDLE_PERCENT
from observability.alerts.gpu import (
    APPLICATION_XIDS,
    CONTAINED_XIDS,
    FULL_SHARE,
    HARDWARE_XIDS,
    HEAT_SHARE,
    HOT_CELSIUS,
    PCIE_REPLAYS_PER_HOUR,
    POWER_SHARE,
    REPLAYS_PER_HOUR,
)
from observability.dashboards.model import Dashboard, Limit, Panel, Query, Row, Unit, Variable
from observability.dashboards.queries import OF_TEAM, RATE, TEAM

_OF_GPUS = f'{OF_TEAM},node=~"$node"'
_GPU = "node, gpu"
_LEGEND = "{{node}} GPU {{gpu}}"
_NANOSECONDS = 1_000_000_000


def _newest(metric: str) -> str:
    return f"max by ({_GPU}) (DCGM_FI_{metric}{{{_OF_GPUS}}})"


def _growth(metric: str, window: str) -> str:
    return f"sum by ({_GPU}) (increase(DCGM_FI_DEV_{metric}{{{_OF_GPUS}}}[{window}]))"


def _throttled(cause: str) -> str:
    return f"sum by ({_GPU}) (rate(DCGM_FI_DEV_{cause}_VIOLATION{{{_OF_GPUS}}}{RATE})) / {_NANOSECONDS}"


def _xids(codes: tuple[int, ...]) -> Query:
    pattern = "|".join(map(str, codes))
    return Query(
        expression=f'max by ({_GPU}, xid) (DCGM_EXP_XID_ERRORS_COUNT{{{_OF_GPUS},xid=~"{pattern}"}})',
        legend=f"{_LEGEND} XID {{{{xid}}}}",
    )


_USE = Row(
    title="Use",
    panels=(
        Panel(
            title="Utilization",
            description="Share of time in which a kernel ran. It says that a GPU is in use, not how well: compare with the "
            "active shares of its parts.",
            unit=Unit.PERCENT,
            queries=(Query(expression=_newest("DEV_GPU_UTIL"), legend=_LEGEND),),
            limits=(Limit(alert="GpuAllocatedIdle", value=IDLE_PERCENT, is_lower=True),),
            alerts=("GpuNodeIdle", "GpuMetricsMissing"),
            maximum=100,
        ),
        Panel(
            title="Multiprocessors active",
            description="Share of cycles in which a multiprocessor had a warp. Below 0.5 the kernels are too small or too few.",
            unit=Unit.RATIO,
            queries=(Query(expression=_newest("PROF_SM_ACTIVE"), legend=_LEGEND),),
            maximum=1,
        ),
        Panel(
            title="Tensor cores active",
            description="Share of cycles. What mixed precision and large matrices raise.",
            unit=Unit.RATIO,
            queries=(Query(expression=_newest("PROF_PIPE_TENSOR_ACTIVE"), legend=_LEGEND),),
        ),
        Panel(
            title="Memory in use",
            description="Share of the GPU's memory. PyTorch keeps what it has reserved, so it does not fall during a run.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expression=f"{_newest('DEV_FB_USED')} / ({_newest('DEV_FB_USED')} + {_newest('DEV_FB_FREE')})",
                    legend=_LEGEND,
                ),
            ),
            limits=(Limit(alert="GpuMemoryAlmostFull", value=FULL_SHARE),),
            maximum=1,
        ),
        Panel(
            title="Memory traffic",
            description="Share of cycles in which memory sent or received. High with idle tensor cores: limited by memory.",
            unit=Unit.RATIO,
            queries=(Query(expression=_newest("PROF_DRAM_ACTIVE"), legend=_LEGEND),),
            maximum=1,
        ),
        Panel(
            title="NVLink traffic",
            description="Over all lanes: gradients between the GPUs of a node.",
            unit=Unit.BYTES_PER_SECOND,
            queries=(
                Query(
                    expression=f"sum by ({_GPU}) (rate(DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{{{_OF_GPUS}}}{RATE}))",
                    legend=_LEGEND,
                ),
            ),
        ),
        Panel(
            title="PCIe traffic",
            description="Sent upwards and received downwards: batches from the host, and gradients where there is no NVLink.",
            unit=Unit.BYTES_PER_SECOND,
            queries=(
                Query(expression=_newest("PROF_PCIE_TX_BYTES"), legend=f"{_LEGEND} sent"),
                Query(expression=f"-{_newest('PROF_PCIE_RX_BYTES')}", legend=f"{_LEGEND} received"),
            ),
            minimum=None,
        ),
        Panel(
            title="Power",
            description="Close to the GPU's limit in a run that uses it well.",
            unit=Unit.WATTS,
            queries=(Query(expression=_newest("DEV_POWER_USAGE"), legend=_LEGEND),),
        ),
        Panel(
            title="Clock",
            description="Of the multiprocessors. GPUs of one model have nearly the same; one that is lower slows all ranks.",
            unit=Unit.HERTZ,
            queries=(Query(expression=f"{_newest('DEV_SM_CLOCK')} * 1000000", legend=_LEGEND),),
            alerts=("GpuThrottledByHeat", "GpuThrottledByPower"),
        ),
    ),
)

_HEAT = Row(
    title="Heat and power",
    panels=(
        Panel(
            title="Temperature",
            description="Of the GPU. One that is hotter than the others of its node has a cooling fault.",
            unit=Unit.CELSIUS,
            queries=(Query(expression=_newest("DEV_GPU_TEMP"), legend=_LEGEND),),
            limits=(Limit(alert="GpuHot", value=HOT_CELSIUS),),
        ),
        Panel(
            title="Throttled by heat",
            description="Share of time. Cooling that works leaves none.",
            unit=Unit.RATIO,
            queries=(Query(expression=_throttled("THERMAL"), legend=_LEGEND),),
            limits=(Limit(alert="GpuThrottledByHeat", value=HEAT_SHARE),),
        ),
        Panel(
            title="Throttled by the power limit",
            description="Share of time. Some is normal under full load, on all GPUs alike.",
            unit=Unit.RATIO,
            queries=(Query(expression=_throttled("POWER"), legend=_LEGEND),),
            limits=(Limit(alert="GpuThrottledByPower", value=POWER_SHARE),),
        ),
    ),
)

_FAULTS = Row(
    title="Faults",
    panels=(
        Panel(
            title="XIDs",
            description="Errors that the driver reported within five minutes, by NVIDIA's code. Hardware codes page; those of "
            "programs are shown only. No line is good.",
            unit=Unit.COUNT,
            queries=(_xids(HARDWARE_XIDS), _xids(CONTAINED_XIDS), _xids(APPLICATION_XIDS)),
            alerts=("GpuXidHardware", "GpuXidContained", "GpuXidApplication"),
        ),
        Panel(
            title="Memory errors in an hour",
            description="Uncorrected errors may have changed results. Corrected ones have not; a GPU with many of them ages.",
            unit=Unit.COUNT,
            queries=(
                Query(expression=_growth("ECC_DBE_VOL_TOTAL", "1h"), legend=f"{_LEGEND} uncorrected"),
                Query(expression=_growth("ECC_SBE_VOL_TOTAL", "1h"), legend=f"{_LEGEND} corrected"),
            ),
            alerts=("GpuMemoryErrorUncorrected",),
        ),
        Panel(
            title="Remapped rows",
            description="Rows of memory replaced since manufacture. A failed remapping means that no spare rows are left.",
            unit=Unit.COUNT,
            queries=(
                Query(expression=_newest("DEV_UNCORRECTABLE_REMAPPED_ROWS"), legend=f"{_LEGEND} uncorrected"),
                Query(expression=_newest("DEV_CORRECTABLE_REMAPPED_ROWS"), legend=f"{_LEGEND} corrected"),
                Query(expression=_newest("DEV_ROW_REMAP_FAILURE"), legend=f"{_LEGEND} failed"),
            ),
            alerts=("GpuRowsRemapped", "GpuRowRemapFailed"),
        ),
        Panel(
            title="NVLink replays in an hour",
            description="Packets that were sent again. A link with many is slow.",
            unit=Unit.COUNT,
            queries=(Query(expression=_growth("NVLINK_REPLAY_ERROR_COUNT_TOTAL", "1h"), legend=_LEGEND),),
            limits=(Limit(alert="GpuNvlinkReplays", value=REPLAYS_PER_HOUR),),
        ),
        Panel(
            title="NVLink recoveries in an hour",
            description="The link was lost for a moment. None is normal.",
            unit=Unit.COUNT,
            queries=(Query(expression=_growth("NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "1h"), legend=_LEGEND),),
            alerts=("GpuNvlinkRecoveries",),
        ),
        Panel(
            title="PCIe replays in an hour",
            description="Packets between host and GPU that were sent again. Single ones have no effect.",
            unit=Unit.COUNT,
            queries=(Query(expression=_growth("PCIE_REPLAY_COUNTER", "1h"), legend=_LEGEND),),
            limits=(Limit(alert="GpuPcieReplays", value=PCIE_REPLAYS_PER_HOUR),),
        ),
    ),
)

GPU_DASHBOARD = Dashboard(
    uid="rtp-gpu",
    title="GPU",
    description="Are the GPUs busy, is one slower than the others, and is one about to fail? Choose a team and nodes.",
    rows=(_USE, _HEAT, _FAULTS),
    variables=(
        TEAM,
        Variable(name="node", title="Node", selector=f"DCGM_FI_DEV_GPU_UTIL{{{OF_TEAM}}}", label="node"),
    ),
)
"""Hardware."""

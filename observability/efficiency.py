"""How well a run uses its devices, in words: FLOP/s and MFU, and the utilization and memory of its GPUs."""

from __future__ import annotations

from math import isfinite

from observability.history import RunHistory
from observability.quantities import flop_rate, percent, size
from observability.runlog import RanksMeasured


def efficiency_facts(history: RunHistory, *, newest: int | None = None) -> list[str]:
    """`12.3 TFLOP/s` and `MFU 41.0 %` over the `newest` steps, or over all; without what is not known."""
    rate, mfu = history.flops_per_second(newest=newest), history.mfu(newest=newest)
    facts = [] if rate is None else [flop_rate(rate)]
    return facts if mfu is None else [*facts, f"MFU {percent(mfu)}"]


def gpu_facts(ranks: RanksMeasured) -> str:
    """The utilization over all ranks, and the largest memory: `91.0 % to 97.0 % in use, up to 31.2 GiB of tensors`."""
    known = [ratio for ratio in ranks.gpu_utilization if isfinite(ratio)]
    busy = f"{percent(min(known))} to {percent(max(known))} in use, " if known else ""
    return f"{busy}up to {size(max(ranks.gpu_allocated_bytes))} of tensors"

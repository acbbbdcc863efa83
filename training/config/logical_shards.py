"""What the settings must be for the same bits with any number of workers (`loop.logical_shards`)."""

from __future__ import annotations

from training.config.communication import CommunicationSettings
from training.config.execution import ComputeSettings, ScaleSettings
from training.config.strategy import StrategySettings
from training.config.task import LoopSettings, RunSettings


def check_logical_shards(
    loop: LoopSettings,
    *,
    run: RunSettings,
    scale: ScaleSettings,
    strategy: StrategySettings,
    communication: CommunicationSettings,
    compute: ComputeSettings,
) -> None:
    """Check logical shards against the other sections.

    Raises:
        ValueError: they do not fit; names the keys, the values and what works.
    """
    shards = loop.logical_shards
    if shards is None:
        return
    first = f"loop.logical_shards={shards}"
    if strategy.name != "ddp":
        raise ValueError(f"{first} needs strategy.name=ddp, got {strategy.name}: it sums the gradients of whole models")
    if given := sorted(communication.changed):
        raise ValueError(
            f"communication.{given[0]}={getattr(communication, given[0])} is for the gradients that DDP sends, and {first} sums them "
            "otherwise, in an order of its own; use one of them"
        )
    if shards % scale.workers:
        fitting = [2**power for power in range(shards.bit_length())]
        nearest = min(fitting, key=lambda number: (abs(number - scale.workers), number))
        raise ValueError(
            f"scale.workers={scale.workers} must divide {first}, so that every worker has as many; nearest: {nearest}"
        )
    if not run.deterministic:
        raise ValueError(f"{first} promises equal bits and needs run.deterministic=true")
    if compute.compile == "max-autotune":
        raise ValueError(
            f"compute.compile=max-autotune chooses kernels by their speed on each worker, and {first} promises equal bits; use default"
        )

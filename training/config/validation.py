"""Rules of `loop.validation=async` between sections: whether another process can give the metrics that the ranks would."""

from __future__ import annotations

from training.config.execution import PrecisionSettings, ScaleSettings
from training.config.strategy import StrategySettings
from training.config.task import LoopSettings


def check_validation(
    loop: LoopSettings, *, scale: ScaleSettings, precision: PrecisionSettings, strategy: StrategySettings
) -> None:
    """Check the settings of validation next to the training.

    Raises:
        ValueError: the evaluator could not compute what the ranks compute, or has no device.
    """
    on_gpu = loop.validation_device == "gpu"
    if loop.validation == "inline":
        if on_gpu:
            raise ValueError(
                "loop.validation_device=gpu is for loop.validation=async; with inline the ranks evaluate on their own devices"
            )
        return
    if on_gpu and not scale.gpu:
        raise ValueError("loop.validation_device=gpu needs scale.gpu=true; set loop.validation_device=cpu")
    if not on_gpu and precision.mode in {"fp16", "fp8"}:
        raise ValueError(
            f"loop.validation=async on a CPU computes no {precision.mode} (precision.mode): set loop.validation_device=gpu, or "
            "loop.validation=inline"
        )
    if strategy.parameters == "bf16":
        raise ValueError(
            f"strategy.parameters=bf16 ({strategy.name}) evaluates with weights in bf16, and loop.validation=async with those in fp32 "
            "of the checkpoint, whose metrics differ: set strategy.parameters=fp32, or loop.validation=inline"
        )

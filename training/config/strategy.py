"""The section that says how the model is distributed over the ranks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveInt, WithJsonSchema, model_validator

from infra.spec.section import Section
from training.config import deepspeed
from training.config.execution import ComputeSettings, PrecisionSettings, ScaleSettings

DeepSpeedConfiguration = Annotated[
    deepspeed.Configuration, BeforeValidator(deepspeed.read), WithJsonSchema({"type": ["string", "object"]})
]


class StrategySettings(Section):
    """How the model is distributed over the ranks. A run may go on under another strategy and number of ranks."""

    name: Literal["ddp", "fsdp2", "hsdp", "zero1", "zero2", "zero3"] = Field(
        "ddp",
        description="ddp (every rank has the whole model) | fsdp2 (every rank has a part of the weights, gradients and optimizer state) | "
        "hsdp (as fsdp2 within each of several groups of ranks) | zero1, zero2, zero3 (through DeepSpeed, every rank has a part of the "
        "optimizer state, of the gradients too, of the weights too).",
    )
    replicas: PositiveInt = Field(1, description="Groups of ranks that share one copy of the model (hsdp).")
    parameters: Literal["fp32", "bf16"] = Field(
        "fp32",
        description="Number format in which weights are gathered and computed with (all but ddp): fp32 | bf16. Each rank's part, gradients "
        "and optimizer state stay fp32; under zero1 to zero3 gradients are bf16.",
    )
    reshard_after_forward: bool = Field(
        True,
        description="Gather a block's weights again for the backward pass, instead of keeping them (fsdp2, hsdp): less memory,"
        " more traffic.",
    )
    offload: bool = Field(
        False,
        description="Keep weights and optimizer state in host memory between their uses (fsdp2, hsdp, zero3 on GPUs); under zero1 and "
        "zero2 the optimizer state only, which is updated there, as under zero3.",
    )
    deepspeed: DeepSpeedConfiguration | None = Field(
        None,
        description="A DeepSpeed configuration (zero1 to zero3): the path of its JSON file, whose content becomes part of the run, or the "
        'content. What the settings say too must say the same, or "auto".',
    )

    @model_validator(mode="after")
    def _options_belong_to_the_strategy(self) -> StrategySettings:
        if self.name != "hsdp" and self.replicas != 1:
            raise ValueError(f"replicas={self.replicas} is a setting of name=hsdp, got name={self.name}")
        if self.name == "hsdp" and self.replicas == 1:
            raise ValueError("name=hsdp needs replicas=2 or more; name=fsdp2 is one group of all ranks")
        sharding = {"parameters", "reshard_after_forward", "offload"} & self.model_fields_set
        if self.name == "ddp" and any(getattr(self, key) != type(self).model_fields[key].default for key in sharding):
            raise ValueError(f"{', '.join(sorted(sharding))}: settings of name=fsdp2 and hsdp, got name=ddp")
        if self.is_zero and not self.reshard_after_forward:
            raise ValueError(f"reshard_after_forward=false is a setting of name=fsdp2 and hsdp, got name={self.name}")
        if self.deepspeed is not None and not self.is_zero:
            raise ValueError(f"deepspeed is a setting of name=zero1, zero2 and zero3, got name={self.name}")
        return self

    @property
    def is_zero(self) -> bool:
        """Whether DeepSpeed distributes the model."""
        return self.name in deepspeed.STAGES


def check_strategy(
    strategy: StrategySettings, *, scale: ScaleSettings, precision: PrecisionSettings, compute: ComputeSettings
) -> None:
    """Check the strategy against the sections that say how the run is computed.

    Raises:
        ValueError: it does not fit; names the keys, the values and the nearest that works.
    """
    if strategy.name == "ddp":
        return
    workers = scale.workers
    if strategy.is_zero and workers == 1:
        raise ValueError(
            f"strategy.name={strategy.name} divides the state of the training among the workers and needs scale.workers=2 or more; "
            "use strategy.name=ddp"
        )
    if workers % strategy.replicas or workers == strategy.replicas:
        fitting = [number for number in range(2, workers) if workers % number == 0]
        nearest = min(fitting, key=lambda number: abs(number - strategy.replicas), default=None)
        advice = "use strategy.name=fsdp2" if nearest is None else f"nearest: {nearest}"
        raise ValueError(
            f"strategy.replicas={strategy.replicas} must divide scale.workers={workers} into groups of 2 or more; {advice}"
        )
    if precision.mode == "fp16":
        raise ValueError(f"precision.mode=fp16 has no loss scaling under strategy.name={strategy.name}; use bf16")
    if strategy.parameters == "bf16" and precision.mode != "bf16":
        raise ValueError(f"strategy.parameters=bf16 needs precision.mode=bf16, got {precision.mode}")
    if strategy.offload and not scale.gpu:
        raise ValueError("strategy.offload=true needs scale.gpu=true: on CPUs everything is in host memory")
    if compute.compile != "off":
        raise ValueError(f"compute.compile={compute.compile} needs strategy.name=ddp, got {strategy.name}")

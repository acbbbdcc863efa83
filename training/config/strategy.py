"""The section that says how the model is distributed over the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveInt, WithJsonSchema, model_validator

from infra.spec.section import Section
from training.config import deepspeed
from training.config.execution import ComputeSettings, PrecisionSettings, ScaleSettings
from training.config.task import LoopSettings

DeepSpeedConfiguration = Annotated[
    deepspeed.Configuration, BeforeValidator(deepspeed.read), WithJsonSchema({"type": ["string", "object"]})
]


class StrategySettings(Section):
    """How the model is distributed over the ranks. A run may go on under another strategy and number of ranks."""

    name: Literal["ddp", "fsdp2", "hsdp", "pipeline", "zero1", "zero2", "zero3"] = Field(
        "ddp",
        description="ddp (every rank has the whole model) | fsdp2 (every rank has a part of the weights, gradients and optimizer state) | "
        "hsdp (as fsdp2 within each of several groups of ranks) | pipeline (every rank has some of the model's layers) | "
        "zero1, zero2, zero3 (through DeepSpeed, every rank has a part of the optimizer state, of the gradients too, of the weights too).",
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
    stages: PositiveInt = Field(
        1,
        description="Ranks in a row that share one copy of the model (pipeline); scale.workers / stages copies train in parallel.",
    )
    schedule: Literal["1f1b", "interleaved"] = Field(
        "1f1b",
        description="Order of the passes in a pipeline: 1f1b (one forward, one backward in turn) | interleaved (the same over several "
        "stages on each rank: less idle time, more transfers).",
    )
    stages_per_rank: PositiveInt = Field(
        1, description="Stages of the model on each rank of a pipeline; 2 or more with schedule=interleaved."
    )

    @property
    def ranks_per_share(self) -> int:
        """Ranks that read the same samples: those of one pipeline."""
        return self.stages

    @model_validator(mode="after")
    def _options_belong_to_the_strategy(self) -> StrategySettings:
        if self.name != "hsdp" and self.replicas != 1:
            raise ValueError(f"replicas={self.replicas} is a setting of name=hsdp, got name={self.name}")
        if self.name == "hsdp" and self.replicas == 1:
            raise ValueError("name=hsdp needs replicas=2 or more; name=fsdp2 is one group of all ranks")
        self._check_the_pipeline()
        sharding = {"parameters", "reshard_after_forward", "offload"} & self.model_fields_set
        if self.name in {"ddp", "pipeline"} and any(
            getattr(self, key) != type(self).model_fields[key].default for key in sharding
        ):
            raise ValueError(f"{', '.join(sorted(sharding))}: settings of name=fsdp2 and hsdp, got name={self.name}")
        if self.is_zero and not self.reshard_after_forward:
            raise ValueError(f"reshard_after_forward=false is a setting of name=fsdp2 and hsdp, got name={self.name}")
        if self.deepspeed is not None and not self.is_zero:
            raise ValueError(f"deepspeed is a setting of name=zero1, zero2 and zero3, got name={self.name}")
        return self

    @property
    def is_zero(self) -> bool:
        """Whether DeepSpeed distributes the model."""
        return self.name in deepspeed.STAGES

    @property
    def is_fully_sharded(self) -> bool:
        """Whether FSDP2 distributes the model."""
        return self.name in {"fsdp2", "hsdp"}

    def _check_the_pipeline(self) -> None:
        if self.name != "pipeline":
            for key in ("stages", "schedule", "stages_per_rank"):
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise ValueError(f"{key}={getattr(self, key)} is a setting of name=pipeline, got name={self.name}")
            return
        if self.stages == 1:
            raise ValueError("name=pipeline needs stages=2 or more; with one stage use name=ddp")
        if self.schedule == "1f1b" and self.stages_per_rank != 1:
            raise ValueError(
                f"stages_per_rank={self.stages_per_rank} needs schedule=interleaved; 1f1b has one stage on each rank"
            )
        if self.schedule == "interleaved" and self.stages_per_rank == 1:
            raise ValueError(
                "schedule=interleaved needs stages_per_rank=2 or more; with one stage on each rank use 1f1b"
            )


def check_strategy(
    strategy: StrategySettings,
    *,
    loop: LoopSettings,
    scale: ScaleSettings,
    precision: PrecisionSettings,
    compute: ComputeSettings,
) -> None:
    """Check the strategy against the sections that say how the run is computed.

    Raises:
        ValueError: it does not fit; names the keys, the values and the nearest that works.
    """
    if strategy.name == "ddp":
        return
    if strategy.name == "pipeline":
        _check_stages(strategy, scale)
        _check_micro_batches(strategy, loop, scale)
    else:
        _check_replicas(strategy, scale)
    if precision.mode == "fp16":
        raise ValueError(f"precision.mode=fp16 has no loss scaling under strategy.name={strategy.name}; use bf16")
    if precision.mode == "fp8" and strategy.name not in {"fsdp2", "hsdp"}:
        raise ValueError(f"precision.mode=fp8 needs strategy.name=ddp, fsdp2 or hsdp, got {strategy.name}; use bf16")
    if strategy.parameters == "bf16" and precision.mode not in {"bf16", "fp8"}:
        raise ValueError(f"strategy.parameters=bf16 needs precision.mode=bf16 or fp8, got {precision.mode}")
    if strategy.offload and not scale.gpu:
        raise ValueError("strategy.offload=true needs scale.gpu=true: on CPUs everything is in host memory")
    if compute.compile != "off":
        raise ValueError(f"compute.compile={compute.compile} needs strategy.name=ddp, got {strategy.name}")


def schedule_accepts(micro_batches: int, strategy: StrategySettings) -> bool:
    """Whether a pipeline's schedule can order so many micro-batches; other strategies take any number.

    Both keep every rank busy only from one micro-batch per rank on; torch's interleaved schedule takes them in equal rounds of at least
    that many.
    """
    if strategy.name != "pipeline":
        return True
    if micro_batches < strategy.stages:
        return False
    return strategy.schedule == "1f1b" or micro_batches % (micro_batches // strategy.stages) == 0


def _check_replicas(strategy: StrategySettings, scale: ScaleSettings) -> None:
    workers = scale.workers
    if strategy.is_zero and workers == 1:
        raise ValueError(
            f"strategy.name={strategy.name} divides the state of the training among the workers and needs scale.workers=2 or more; "
            "use strategy.name=ddp"
        )
    if workers % strategy.replicas or workers == strategy.replicas:
        fitting = [number for number in range(2, workers) if workers % number == 0]
        nearest = _nearest(fitting, strategy.replicas)
        advice = "use strategy.name=fsdp2" if nearest is None else f"nearest: {nearest}"
        raise ValueError(
            f"strategy.replicas={strategy.replicas} must divide scale.workers={workers} into groups of 2 or more; {advice}"
        )


def _check_stages(strategy: StrategySettings, scale: ScaleSettings) -> None:
    workers, stages = scale.workers, strategy.stages
    if scale.launcher == "plain":
        raise ValueError(
            f"strategy.name=pipeline needs scale.workers={stages} or more, and scale.launcher=plain runs one process; use torchrun or ray"
        )
    if workers % stages:
        nearest = _nearest([number for number in range(2, workers + 1) if workers % number == 0], stages)
        multiple = -(-workers // stages) * stages
        advice = f"nearest: scale.workers={multiple}" + ("" if nearest is None else f" or strategy.stages={nearest}")
        raise ValueError(f"strategy.stages={stages} must divide scale.workers={workers}; {advice}")


def _check_micro_batches(strategy: StrategySettings, loop: LoopSettings, scale: ScaleSettings) -> None:
    if schedule_accepts(loop.accumulation, strategy):
        return
    pipelines = scale.workers // strategy.stages
    fitting = [
        number
        for number in range(strategy.stages, loop.global_batch // pipelines + 1)
        if loop.global_batch % (pipelines * number) == 0 and schedule_accepts(number, strategy)
    ]
    nearest = _nearest(fitting, loop.accumulation)
    advice = (
        f"loop.global_batch={loop.global_batch} cannot be divided so among {pipelines} pipelines, raise it"
        if nearest is None
        else f"nearest: {nearest}"
    )
    rule = f"at least strategy.stages={strategy.stages}"
    if strategy.schedule == "interleaved":
        rule += ", in equal rounds of that many or more"
    raise ValueError(
        f"loop.accumulation={loop.accumulation} is the number of micro-batches of a pipeline, which must be {rule}; {advice}"
    )


def _nearest(fitting: Sequence[int], wanted: int) -> int | None:
    return min(fitting, key=lambda number: abs(number - wanted), default=None)

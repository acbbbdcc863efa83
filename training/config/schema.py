"""The settings of a training run, as one tree of frozen pydantic models.

Nothing heavy is imported here, so that an invalid setting is refused within a second. The checks here need only the settings;
`training.preflight` checks the machine (CPUs, GPUs, folders, ports).
"""

from __future__ import annotations

from pydantic import Field, model_validator

from infra.spec.section import Section
from training.config import deepspeed
from training.config.communication import CommunicationSettings, check_communication
from training.config.execution import (
    AllocatorSettings,
    ComputeSettings,
    PrecisionSettings,
    ScaleSettings,
)
from training.config.logical_shards import check_logical_shards
from training.config.records import (
    CheckpointSettings,
    MetricsSettings,
    ProfileSettings,
    TrackingSettings,
)
from training.config.recovery import RecoverySettings
from training.config.strategy import StrategySettings, check_strategy
from training.config.task import (
    DataSettings,
    EmaSettings,
    LoopSettings,
    ModelSettings,
    ObjectiveSettings,
    OptimizerSettings,
    RunSettings,
    ScheduleSettings,
)
from training.config.validation import check_validation
from training.config.values import OptionValue

__all__ = [
    "AllocatorSettings",
    "CheckpointSettings",
    "CommunicationSettings",
    "ComputeSettings",
    "DataSettings",
    "EmaSettings",
    "LoopSettings",
    "MetricsSettings",
    "ModelSettings",
    "ObjectiveSettings",
    "OptimizerSettings",
    "OptionValue",
    "PrecisionSettings",
    "ProfileSettings",
    "RecoverySettings",
    "RunSettings",
    "ScaleSettings",
    "ScheduleSettings",
    "StrategySettings",
    "TrackingSettings",
    "TrainingSettings",
]


_COMPUTE = ComputeSettings.model_fields


class TrainingSettings(Section):
    """All settings of a training run."""

    run: RunSettings = Field(default_factory=RunSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    data: DataSettings = Field(default_factory=DataSettings)
    objective: ObjectiveSettings = Field(default_factory=ObjectiveSettings)
    optimizer: OptimizerSettings = Field(default_factory=OptimizerSettings)
    ema: EmaSettings = Field(default_factory=EmaSettings)
    schedule: ScheduleSettings = Field(default_factory=ScheduleSettings)
    loop: LoopSettings = Field(default_factory=LoopSettings)
    precision: PrecisionSettings = Field(default_factory=PrecisionSettings)
    strategy: StrategySettings = Field(default_factory=StrategySettings)
    communication: CommunicationSettings = Field(default_factory=CommunicationSettings)
    compute: ComputeSettings = Field(default_factory=ComputeSettings)
    scale: ScaleSettings = Field(default_factory=ScaleSettings)
    recovery: RecoverySettings = Field(default_factory=RecoverySettings)
    checkpoint: CheckpointSettings = Field(default_factory=CheckpointSettings)
    tracking: TrackingSettings = Field(default_factory=TrackingSettings)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    profile: ProfileSettings = Field(default_factory=ProfileSettings)

    @model_validator(mode="after")
    def _the_strategy_fits(self) -> TrainingSettings:
        check_strategy(self.strategy, loop=self.loop, scale=self.scale, precision=self.precision, compute=self.compute)
        return self

    @model_validator(mode="after")
    def _an_elastic_run_can_be_resized(self) -> TrainingSettings:
        if self.scale.is_elastic and self.strategy.name == "pipeline":
            raise ValueError(
                f"scale.workers={self.scale.min_workers}-{self.scale.workers} cannot be elastic with strategy.name=pipeline, whose workers "
                f"have different layers; use scale.workers={self.scale.workers}, or strategy.name=ddp or fsdp2"
            )
        return self

    @property
    def shares(self) -> int:
        """Shares that the samples of a step are divided into: one for each rank, or for each pipeline."""
        return self.scale.workers // self.strategy.ranks_per_share

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a rank in an optimizer step."""
        shards = self.loop.logical_shards
        return self.loop.accumulation if shards is None else shards // self.scale.workers

    @model_validator(mode="after")
    def _logical_shards_fit(self) -> TrainingSettings:
        check_logical_shards(
            self.loop,
            run=self.run,
            scale=self.scale,
            strategy=self.strategy,
            communication=self.communication,
            compute=self.compute,
        )
        return self

    @model_validator(mode="after")
    def _batch_divides(self) -> TrainingSettings:
        parts = self.shares * self.loop.accumulation
        if self.loop.global_batch % parts:
            lower = max(parts, self.loop.global_batch - self.loop.global_batch % parts)
            ranks, batch = self.strategy.ranks_per_share, self.loop.global_batch
            fitting = [
                number * ranks for number in range(1, batch + 1) if batch % (number * self.loop.accumulation) == 0
            ]
            workers = min(fitting, key=lambda number: abs(number - self.scale.workers), default=None)
            divided = "" if self.strategy.ranks_per_share == 1 else " / strategy.stages"
            raise ValueError(
                f"loop.global_batch={self.loop.global_batch} must be a multiple of scale.workers{divided} x loop.accumulation "
                f"= {self.shares} x {self.loop.accumulation} = {parts}; nearest: {lower}"
                + ("" if workers is None else f", or scale.workers={workers}")
            )
        return self

    @model_validator(mode="after")
    def _precision_fits_the_device(self) -> TrainingSettings:
        if self.precision.mode == "fp16" and not self.scale.gpu:
            raise ValueError("precision.mode=fp16 needs scale.gpu=true; on a CPU use bf16 or fp32")
        if self.precision.mode == "fp8" and not self.scale.gpu:
            raise ValueError(
                "precision.mode=fp8 needs scale.gpu=true, with GPUs from Ada and Hopper on; on a CPU use bf16 or fp32"
            )
        return self

    @model_validator(mode="after")
    def _ray_data_has_ray(self) -> TrainingSettings:
        if self.data.reader == "ray_data" and self.scale.launcher != "ray":
            raise ValueError(
                f"data.reader=ray_data needs scale.launcher=ray, got {self.scale.launcher}; use reader=loader"
            )
        return self

    @model_validator(mode="after")
    def _settings_of_gpus_have_gpus(self) -> TrainingSettings:
        compute = self.compute
        given = [name for name in ("memory_fraction", "allocator") if getattr(compute, name) != _COMPUTE[name].default]
        if given and not self.scale.gpu:
            raise ValueError(
                f"compute.{given[0]} is about the memory of GPUs and needs scale.gpu=true; a CPU run is limited by its machine or container"
            )
        return self

    @model_validator(mode="after")
    def _the_attention_kernel_fits(self) -> TrainingSettings:
        if self.compute.attention == "efficient" and not self.scale.gpu:
            raise ValueError("compute.attention=efficient needs scale.gpu=true; CPUs have flash and math")
        if self.compute.attention == "flash" and self.scale.gpu and self.precision.mode == "fp32":
            raise ValueError(
                "compute.attention=flash needs precision.mode=bf16, fp16 or fp8 on GPUs, got fp32; efficient and math do not"
            )
        return self

    @model_validator(mode="after")
    def _deepspeed_does_what_the_settings_say(self) -> TrainingSettings:
        strategy = self.strategy
        if (
            strategy.is_zero
            and self.ema.decay is not None
            and (strategy.name == "zero3" or strategy.parameters == "bf16")
        ):
            raise ValueError(
                f"ema.decay={self.ema.decay} averages weights in fp32 that each rank has, and strategy.name={strategy.name} with "
                f"parameters={strategy.parameters} has none; use zero2 with parameters=fp32, or fsdp2"
            )
        if strategy.is_zero:
            deepspeed.check(self)
        return self

    @model_validator(mode="after")
    def _there_is_something_to_communicate(self) -> TrainingSettings:
        check_communication(
            self.communication,
            strategy=self.strategy,
            scale=self.scale,
            loop=self.loop,
            precision=self.precision,
            ema=self.ema,
        )
        return self

    @model_validator(mode="after")
    def _another_process_can_validate(self) -> TrainingSettings:
        check_validation(self.loop, scale=self.scale, precision=self.precision, strategy=self.strategy)
        return self

    @property
    def may_skip_steps(self) -> bool:
        """Whether a step may leave everything as it was: under fp16 any, to find the scale."""
        return self.loop.nonfinite == "skip" or self.precision.mode == "fp16"

"""The settings of a training run, as one tree of frozen pydantic models.

Nothing heavy is imported here, so that an invalid setting is refused within a second. The checks here need only the settings;
`training.preflight` checks the machine (CPUs, GPUs, folders, ports).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from infra.spec.matching import Matching
from infra.spec.section import Section
from training.profiling.request import MOST_STEPS

OptionValue = bool | int | float | str | list[int] | list[float] | list[str] | None
"""Values of a model's or dataset's own options."""

Fraction = Annotated[float, Field(ge=0, lt=1)]


Timeout = Annotated[float, Field(gt=0, le=7 * 24 * 3600)]
"""Seconds, at most a week: torch cannot hold any number of them."""


class RunSettings(Section):
    """The run's name, folder and seed."""

    name: (
        Annotated[
            str,
            Matching(
                r"^[a-z0-9][a-z0-9._-]{0,62}$",
                "must be at most 63 lower-case letters, digits, dots, underscores and hyphens, and begin with a letter or digit",
            ),
        ]
        | None
    ) = Field(
        None,
        description="Name of the run; null is `<model>-<dataset>-<time>`.",
    )
    directory: Path = Field(Path(".local/runs"), description="Parent folder of the runs' folders.")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        0, description="Seed of weights, data order, augmentation and dropout."
    )
    deterministic: bool = Field(True, description="Use torch's deterministic algorithms; slower on some GPUs.")
    dollars_per_hour: PositiveFloat | None = Field(
        None,
        description="Price of all the machines of the run, for its cost; null is, in a job of a cluster, the price of its pods' "
        "parts of nodes.",
    )


class ModelSettings(Section):
    """The network."""

    name: str = Field("simple_cnn", description="Built-in model, or `package.module:factory` of your own.")
    options: dict[str, OptionValue] = Field(default_factory=dict, description="Options of the model, by name.")


S3Folder = Annotated[
    str, Matching(r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?$", "must be s3://BUCKET or s3://BUCKET/FOLDER")
]


class ObjectiveSettings(Section):
    """What the training minimizes and reports."""

    name: str = Field(
        "classification",
        description="classification | language_modelling | multi_label | regression, or `package.module:factory` of your own.",
    )
    options: dict[str, OptionValue] = Field(default_factory=dict, description="Options of the objective, by name.")


class DataSettings(Section):
    """The dataset and its loader."""

    dataset: str = Field("digits", description="Built-in dataset, or `package.module:factory` of your own.")
    path: S3Folder | Path | None = Field(
        None, description="Folder of the dataset's files, or s3://BUCKET/FOLDER (needs cache), for file-based datasets."
    )
    cache: Path | None = Field(
        None, description="Folder on a local disk that path is copied to before training; null reads it in place."
    )
    options: dict[str, OptionValue] = Field(default_factory=dict, description="Options of the dataset, by name.")
    augment: bool = Field(True, description="Apply the dataset's augmentation to the training split.")
    validation_fraction: Fraction = Field(
        0.1,
        description="Fraction of the training split held out for validation if the dataset has no validation split.",
    )
    loader_workers: NonNegativeInt = Field(0, description="Loader processes per rank; 0 loads in the rank's process.")
    prefetch: PositiveInt = Field(2, description="Batches that each loader process prefetches.")

    @property
    def folder(self) -> Path:
        """`path` of a dataset that reads files, once `training.data.cache` has replaced a bucket by its copy."""
        assert isinstance(self.path, Path), f"data.path={self.path} is not a local folder"
        return self.path

    @property
    def is_in_bucket(self) -> bool:
        """Whether `path` is a folder of an S3 bucket."""
        return isinstance(self.path, str)

    @model_validator(mode="after")
    def _the_cache_has_a_source(self) -> DataSettings:
        if self.cache is None:
            return self
        if self.path is None:
            raise ValueError(f"cache={self.cache} has nothing to copy: path is not set")
        if isinstance(self.path, Path) and self.cache.absolute().is_relative_to(self.path.absolute()):
            raise ValueError(f"cache={self.cache} is inside path={self.path}, which would be copied into itself")
        return self


class OptimizerSettings(Section):
    """The optimizer and its learning rate."""

    name: Literal["sgd", "adam", "adamw"] = Field("adamw", description="sgd | adam | adamw.")
    learning_rate: PositiveFloat = Field(3e-3, description="Peak learning rate, before linear scaling.")
    base_batch: PositiveInt | None = Field(
        None,
        description="If set, the learning rate is scaled by global_batch / base_batch (linear scaling rule, arXiv:1706.02677).",
    )
    momentum: Fraction = Field(0.9, description="Momentum of SGD.")
    nesterov: bool = Field(False, description="Nesterov momentum, SGD only.")
    betas: tuple[Fraction, Fraction] = Field((0.9, 0.999), description="Decay rates of Adam's moments.")
    weight_decay: NonNegativeFloat = Field(
        0.01, description="Weight decay; decoupled for adamw, L2 for the others. Biases and norm layers get none."
    )

    @model_validator(mode="after")
    def _nesterov_needs_sgd_with_momentum(self) -> OptimizerSettings:
        if self.nesterov and (self.name != "sgd" or self.momentum == 0):
            raise ValueError(
                f"nesterov=true needs name=sgd with momentum > 0, got name={self.name}, momentum={self.momentum}"
            )
        return self


class EmaSettings(Section):
    """An exponential moving average of the weights."""

    decay: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="Decay of the average per step, e.g. 0.999: evaluations and the exported model then have the averaged weights. "
        "null keeps no average.",
    )


class ScheduleSettings(Section):
    """The learning rate schedule; a pure function of the optimizer step."""

    name: Literal["constant", "step", "cosine", "one_cycle"] = Field(
        "cosine", description="constant | step | cosine | one_cycle."
    )
    warmup_steps: NonNegativeInt = Field(
        0, description="Optimizer steps of linear warm-up from 0; not with one_cycle, which has its own."
    )
    step_epochs: PositiveInt = Field(30, description="Epochs between drops (step).")
    gamma: Annotated[float, Field(gt=0, le=1)] = Field(0.1, description="Factor of each drop (step).")
    final_fraction: Annotated[float, Field(ge=0, le=1)] = Field(
        0.01, description="Learning rate at the end as a fraction of the peak (cosine, one_cycle)."
    )
    rise_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.3, description="Fraction of all steps in which the learning rate rises (one_cycle)."
    )

    @model_validator(mode="after")
    def _one_cycle_has_its_own_warmup(self) -> ScheduleSettings:
        if self.name == "one_cycle" and self.warmup_steps:
            raise ValueError(
                f"warmup_steps={self.warmup_steps} contradicts name=one_cycle, whose rise is set by rise_fraction"
            )
        return self


class LoopSettings(Section):
    """Duration, batches, and handling of a bad step."""

    epochs: PositiveInt = Field(10, description="Passes over the training split.")
    max_steps: PositiveInt | None = Field(None, description="Maximum number of optimizer steps; null runs all epochs.")
    global_batch: PositiveInt = Field(
        64, description="Samples per optimizer step over all ranks; independent of the world size."
    )
    accumulation: PositiveInt = Field(1, description="Micro-batches per rank and optimizer step.")
    clip_norm: PositiveFloat | None = Field(1.0, description="Maximum global gradient norm; null disables clipping.")
    evaluate_every: PositiveInt = Field(1, description="Epochs between evaluations on the validation split.")
    nonfinite: Literal["stop", "skip"] = Field(
        "stop", description="On a NaN or infinite loss or gradient: stop the run, or skip the step."
    )
    log_sample_ids: bool = Field(False, description="Write the sample ids of every committed step to the run's ledger.")


class PrecisionSettings(Section):
    """Number format of the forward and backward pass."""

    mode: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32", description="fp32 | bf16 (autocast) | fp16 (autocast with a gradient scaler)."
    )
    initial_scale: PositiveFloat = Field(65536.0, description="Initial loss scale of fp16.")


class StrategySettings(Section):
    """How the model is distributed over the ranks. A run may go on under another strategy: a checkpoint has whole tensors."""

    name: Literal["ddp", "fsdp2", "hsdp"] = Field(
        "ddp",
        description="ddp (every rank has the whole model) | fsdp2 (every rank has a part of the weights, gradients and optimizer state) | "
        "hsdp (as fsdp2 within each of several groups of ranks).",
    )
    replicas: PositiveInt = Field(1, description="Groups of ranks that share one copy of the model (hsdp).")
    parameters: Literal["fp32", "bf16"] = Field(
        "fp32",
        description="Number format in which weights are gathered and computed with (fsdp2, hsdp): fp32 | bf16. Each rank's part, gradients "
        "and optimizer state stay fp32.",
    )
    reshard_after_forward: bool = Field(
        True,
        description="Gather a block's weights again for the backward pass, instead of keeping them (fsdp2, hsdp): less memory,"
        " more traffic.",
    )
    offload: bool = Field(
        False, description="Keep weights and optimizer state in host memory between their uses (fsdp2, hsdp on GPUs)."
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
        return self


class ComputeSettings(Section):
    """How forward and backward pass are computed; results differ by rounding at most."""

    channels_last: bool = Field(
        False,
        description="Keep images and the weights of convolutions in the memory order that tensor cores want; for models of images.",
    )
    activation_checkpointing: bool = Field(
        False,
        description="Compute the activations of a block again in the backward pass instead of keeping them: less memory, about a third "
        "more time, the same bits.",
    )
    compile: Literal["off", "default", "max-autotune"] = Field(
        "off",
        description="off | default | max-autotune (of `torch.compile`): generate kernels for the model in its first steps, which takes "
        "a minute or more; they are kept with the run.",
    )


class ScaleSettings(Section):
    """Number of processes, devices and launcher."""

    launcher: Literal["ray", "torchrun", "plain"] = Field(
        "ray", description="ray (Ray Train) | torchrun | plain (one process)."
    )
    workers: PositiveInt = Field(2, description="Number of ranks (world size).")
    gpu: bool = Field(False, description="One GPU per rank and NCCL; false uses CPUs and gloo.")
    cpus_per_worker: PositiveInt = Field(1, description="CPUs reserved per rank; also its number of torch threads.")
    nodes: PositiveInt = Field(1, description="Number of nodes (torchrun), with equal numbers of workers.")
    node_rank: NonNegativeInt = Field(0, description="Rank of this node (torchrun).")
    rendezvous: Annotated[str, Matching(r"^[^:\s]+:\d{1,5}$", "must be HOST:PORT")] | None = Field(
        None, description="host:port of the rendezvous (torchrun, nodes > 1)."
    )
    address: str | None = Field(None, description="Address of a running Ray cluster; null starts one on this machine.")
    start_timeout: Timeout = Field(
        120.0, description="Timeout for the start of Ray, and for that of all ranks, in seconds."
    )
    collective_timeout: Timeout = Field(300.0, description="Timeout of a collective, in seconds.")
    max_restarts: NonNegativeInt = Field(
        2, description="Times a driver restarts a failed worker group from the newest checkpoint."
    )

    @model_validator(mode="after")
    def _launcher_fits(self) -> ScaleSettings:
        if self.launcher == "plain" and self.workers != 1:
            raise ValueError(
                f"launcher=plain runs one process, got workers={self.workers}; use launcher=torchrun or ray"
            )
        if self.nodes > 1 and self.launcher != "torchrun":
            raise ValueError(f"nodes={self.nodes} is a setting of launcher=torchrun, got launcher={self.launcher}")
        if self.workers % self.nodes:
            raise ValueError(f"workers={self.workers} must be a multiple of nodes={self.nodes}")
        if self.nodes > 1 and self.rendezvous is None:
            raise ValueError(f"nodes={self.nodes} needs rendezvous=host:port of the machine with node_rank 0")
        if self.node_rank >= self.nodes:
            raise ValueError(f"node_rank={self.node_rank} must be smaller than nodes={self.nodes}")
        if self.address is not None and self.launcher != "ray":
            raise ValueError(f"address={self.address} is a setting of launcher=ray, got launcher={self.launcher}")
        return self


class CheckpointSettings(Section):
    """When checkpoints are saved, and how many are kept."""

    every_steps: PositiveInt = Field(
        50, description="Optimizer steps between checkpoints; the last step is always saved."
    )
    after_evaluation: Literal["best", "every"] = Field(
        "best", description="Evaluations after which a checkpoint is saved too: those among the best, or every one."
    )
    keep_last: PositiveInt = Field(2, description="Number of newest checkpoints to keep.")
    keep_best: NonNegativeInt = Field(1, description="Number of best checkpoints, by best_metric, to keep in addition.")
    best_metric: str | None = Field(
        None,
        pattern=r"^validation_[a-z0-9_]+$",
        description="Metric that ranks the checkpoints, e.g. validation_loss; null is the objective's: validation_accuracy of "
        "classification, validation_perplexity of language_modelling, validation_f1 of multi_label, else validation_loss.",
    )
    resume: Literal["auto", "never"] = Field(
        "auto", description="auto resumes from the run's newest good checkpoint; never refuses a run that has one."
    )


class TrackingSettings(Section):
    """MLflow."""

    enabled: bool = Field(True, description="Record the run in MLflow.")
    uri: str | None = Field(
        None, description="Tracking server; null is the embedded SQLite database under .local/mlflow."
    )
    experiment: str = Field("ray-train-platform", min_length=1, description="MLflow experiment.")
    registered_model: str | None = Field(None, description="MLflow registered model; null is `<model>-<dataset>`.")
    checkpoint_models: bool = Field(
        True,
        description="Record the checkpoints that are kept as MLflow logged models, with their evaluations but not their files.",
    )
    dense_points: Annotated[int, Field(ge=100)] | None = Field(
        500,
        description="Points of each metric that MLflow gets in full; from there on, each time the run quadruples, half as many per step, "
        "with the extremes between them. null delivers every point. The run's folder keeps all of them.",
    )


class MetricsSettings(Section):
    """Live metrics of the run."""

    exporter: Literal["prometheus", "ray", "none"] = Field(
        "prometheus", description="prometheus (served by rank 0) | ray (the metrics agent of a Ray cluster) | none."
    )
    host: str = Field("127.0.0.1", description="Address to serve /metrics on.")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        0, description="Port of /metrics; 0 uses an ephemeral port and prints it."
    )
    flops: bool = Field(
        True,
        description="Count the FLOPs of the first micro-batch on rank 0, for FLOP/s and MFU; no value of the run changes.",
    )
    peak_flops: PositiveFloat | None = Field(
        None,
        description="Peak FLOP/s of a rank's device, for MFU; null is that of NVIDIA's data sheet for the GPU and precision.mode.",
    )


class ProfileSettings(Section):
    """A profile of some steps; `make profile` asks for one of a running run without these settings."""

    start_step: Annotated[int, Field(ge=2)] | None = Field(
        None,
        description="First step to profile, of every rank; the step before it starts the profiler. null profiles none.",
    )
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] = Field(10, description="Number of steps to profile.")
    memory: bool = Field(False, description="Write a memory snapshot of each GPU with the profile.")


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
    compute: ComputeSettings = Field(default_factory=ComputeSettings)
    scale: ScaleSettings = Field(default_factory=ScaleSettings)
    checkpoint: CheckpointSettings = Field(default_factory=CheckpointSettings)
    tracking: TrackingSettings = Field(default_factory=TrackingSettings)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    profile: ProfileSettings = Field(default_factory=ProfileSettings)

    @model_validator(mode="after")
    def _batch_divides(self) -> TrainingSettings:
        parts = self.scale.workers * self.loop.accumulation
        if self.loop.global_batch % parts:
            lower = max(parts, self.loop.global_batch - self.loop.global_batch % parts)
            raise ValueError(
                f"loop.global_batch={self.loop.global_batch} must be a multiple of scale.workers x loop.accumulation "
                f"= {self.scale.workers} x {self.loop.accumulation} = {parts}; nearest: {lower}"
            )
        return self

    @model_validator(mode="after")
    def _precision_fits_the_device(self) -> TrainingSettings:
        if self.precision.mode == "fp16" and not self.scale.gpu:
            raise ValueError("precision.mode=fp16 needs scale.gpu=true; on a CPU use bf16 or fp32")
        return self

    @model_validator(mode="after")
    def _the_strategy_fits(self) -> TrainingSettings:
        strategy, workers = self.strategy, self.scale.workers
        if strategy.name == "ddp":
            return self
        if workers % strategy.replicas or workers == strategy.replicas:
            fitting = [number for number in range(2, workers) if workers % number == 0]
            nearest = min(fitting, key=lambda number: abs(number - strategy.replicas), default=None)
            advice = "use strategy.name=fsdp2" if nearest is None else f"nearest: {nearest}"
            raise ValueError(
                f"strategy.replicas={strategy.replicas} must divide scale.workers={workers} into groups of 2 or more; {advice}"
            )
        if self.precision.mode == "fp16":
            raise ValueError(f"precision.mode=fp16 has no loss scaling under strategy.name={strategy.name}; use bf16")
        if strategy.parameters == "bf16" and self.precision.mode != "bf16":
            raise ValueError(f"strategy.parameters=bf16 needs precision.mode=bf16, got {self.precision.mode}")
        if strategy.offload and not self.scale.gpu:
            raise ValueError("strategy.offload=true needs scale.gpu=true: on CPUs everything is in host memory")
        if self.compute.compile != "off":
            raise ValueError(f"compute.compile={self.compute.compile} needs strategy.name=ddp, got {strategy.name}")
        return self

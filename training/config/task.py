"""The sections that say what is trained: model, data, objective, optimizer, schedule and loop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from infra.spec.matching import Matching
from infra.spec.section import Section
from training.config.values import Fraction, OptionValue, S3Folder


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
    output: str | int | None = Field(
        None,
        description="Which output of a model of your own the objective gets, if it returns a mapping or a tuple: its key or index. null: "
        "`logits`, or else the first tensor.",
    )


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
    fingerprint: Literal["files", "contents"] = Field(
        "files",
        description="What has to be equal on resume: files (names and sizes of images; footers of Parquet files and headers of shards) | "
        "contents (also every byte of the files; each is read once per machine).",
    )
    augment: bool = Field(True, description="Apply the dataset's augmentation to the training split.")
    validation_fraction: Fraction = Field(
        0.1,
        description="Fraction of the training split held out for validation if the dataset has no validation split.",
    )
    reader: Literal["loader", "ray_data"] = Field(
        "loader",
        description="What reads the training split: loader (processes beside each rank) | ray_data (tasks on CPUs anywhere in the Ray "
        "cluster, with launcher=ray). Both read the same samples in the same order.",
    )
    loader_workers: NonNegativeInt = Field(
        0,
        description="Loader processes per rank; 0 loads in the rank's process. With reader=ray_data, its tasks at a time per rank.",
    )
    prefetch: PositiveInt = Field(2, description="Batches that each loader process prefetches.")
    pin_memory: bool = Field(
        True,
        description="On GPUs, copy the next batch from pinned host memory while a step computes; false copies it before the step.",
    )

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
    def _ray_data_has_tasks(self) -> DataSettings:
        if self.reader == "ray_data" and not self.loader_workers:
            raise ValueError("reader=ray_data needs loader_workers=1 or more, which are its tasks at a time per rank")
        return self

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
    logical_shards: PositiveInt | None = Field(
        None,
        description="If set, a power of two: compute what so many workers would, a micro-batch each, with any number of workers that "
        "divides it, and the same bits; e.g. 8 for 1, 2, 4 or 8 workers. null divides a step by workers and accumulation.",
    )
    clip_norm: PositiveFloat | None = Field(1.0, description="Maximum global gradient norm; null disables clipping.")
    evaluate_every: PositiveInt = Field(1, description="Epochs between evaluations on the validation split.")
    evaluation_batch: PositiveInt = Field(512, description="Samples per batch of an evaluation, on a rank.")
    validation: Literal["inline", "async"] = Field(
        "inline",
        description="Evaluations between epochs: inline by the ranks, which train on afterwards, or async by another process on the "
        "machine of rank 0, from the epoch's checkpoint, while they train on.",
    )
    validation_device: Literal["cpu", "gpu"] = Field(
        "cpu",
        description="Device of async: cpu takes CPUs that the ranks leave; gpu is that of rank 0, which then holds a second model.",
    )
    validation_wait: PositiveFloat = Field(
        600.0,
        description="Seconds that the end of the run waits for async validations; a resumed run does those that are missing.",
    )
    nonfinite: Literal["stop", "skip"] = Field(
        "stop", description="On a NaN or infinite loss or gradient: stop the run, or skip the step."
    )
    log_sample_ids: bool = Field(False, description="Write the sample ids of every committed step to the run's ledger.")

    @model_validator(mode="after")
    def _shards_make_a_tree(self) -> LoopSettings:
        shards = self.logical_shards
        if shards is None:
            return self
        if shards & (shards - 1):
            lower = 2 ** (shards.bit_length() - 1)
            raise ValueError(
                f"logical_shards={shards} must be a power of two: gradients are summed in pairs; nearest: {lower} or "
                f"{2 * lower}"
            )
        if self.accumulation > 1:
            raise ValueError(
                f"accumulation={self.accumulation} contradicts logical_shards={shards}, each of which is a micro-batch; leave it out, and "
                "raise logical_shards for smaller ones"
            )
        if self.global_batch % shards:
            lower = max(shards, self.global_batch - self.global_batch % shards)
            raise ValueError(
                f"global_batch={self.global_batch} must be a multiple of logical_shards={shards}; nearest: {lower}"
            )
        return self

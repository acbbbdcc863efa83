"""The sections that say what is kept of a run: checkpoints, MLflow, metrics and profiles."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from infra.spec.section import Section
from training.config.values import S3Folder, Timeout
from training.profiling.request import MOST_STEPS


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
    remote: S3Folder | None = Field(
        None,
        description="s3://BUCKET or s3://BUCKET/FOLDER; committed checkpoints are copied there, below the run's name, and a run whose "
        "folder is lost or damaged resumes from there. null: the run's folder only. Jobs on a cluster use the stack's bucket, unless null "
        "is given.",
    )
    remote_owner: Annotated[str, Field(pattern=r"^\d{12}$")] | None = Field(
        None, description="AWS account that the bucket of remote must belong to; null accepts any."
    )
    remote_patience: Timeout = Field(
        600.0, description="Seconds that a run waits at its end for the copy of its newest checkpoint."
    )

    @model_validator(mode="after")
    def _an_owner_has_a_bucket(self) -> CheckpointSettings:
        if self.remote_owner is not None and self.remote is None:
            raise ValueError(f"remote_owner={self.remote_owner} says whose bucket remote is, and remote is not set")
        return self


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

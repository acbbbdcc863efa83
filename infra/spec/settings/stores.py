"""What keeps state: datasets, checkpoints, the database and the images."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from infra.spec.section import Section

Days = PositiveInt


class StorageSettings(Section):
    """EFS for datasets and runs, S3 for checkpoints and artifacts."""

    efs_throughput: Literal["elastic", "bursting"] = Field(
        "elastic", description="elastic is billed by bytes moved; bursting gives throughput by bytes stored."
    )
    efs_uid: Annotated[int, Field(ge=1000, le=65533)] = Field(
        1000, description="User and group id of every file in EFS: the id the trainer image runs as."
    )
    noncurrent_days: Days = Field(30, description="Days an overwritten or deleted checkpoint can be brought back.")
    abort_upload_days: Days = Field(3, description="Days after which an unfinished multipart upload is aborted.")
    infrequent_access_days: Annotated[int, Field(ge=30)] | None = Field(
        90, description="Days after which a checkpoint moves to Standard-IA; null never."
    )


class DatabaseSettings(Section):
    """RDS for PostgreSQL, MLflow's backend."""

    instance_class: str = Field(
        "db.t4g.medium", pattern=r"^db\.[a-z0-9]+\.[a-z0-9]+$", description="Class of the instance."
    )
    engine_version: str = Field("17", pattern=r"^\d{2}$", description="PostgreSQL major; RDS keeps the minor current.")
    allocated_gib: Annotated[int, Field(ge=20, le=65536)] = Field(20, description="Storage at creation, GiB, gp3.")
    max_allocated_gib: Annotated[int, Field(ge=20, le=65536)] = Field(100, description="Storage it may grow to, GiB.")
    multi_az: bool = Field(False, description="A standby in another zone takes over; doubles the price.")

    @model_validator(mode="after")
    def _storage_can_grow(self) -> DatabaseSettings:
        if self.max_allocated_gib < self.allocated_gib:
            raise ValueError(f"max_allocated_gib={self.max_allocated_gib} is below allocated_gib={self.allocated_gib}")
        return self


class RegistrySettings(Section):
    """ECR."""

    keep_images: PositiveInt = Field(50, description="Newest tagged images that are kept in each repository.")
    untagged_days: Days = Field(7, description="Days an image without a tag is kept.")
    pull_through: tuple[Literal["quay.io", "registry.k8s.io", "public.ecr.aws"], ...] = Field(
        (), description="Public registries that are mirrored through ECR's pull-through cache; none needs a login."
    )

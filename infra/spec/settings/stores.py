"""Stateful resources: EFS and S3, the database and the image registry."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from infra.spec.section import Section

Days = PositiveInt


class StorageSettings(Section):
    """EFS for datasets and runs, S3 for checkpoints and artifacts."""

    efs_throughput: Literal["elastic", "bursting"] = Field(
        "elastic", description="elastic: billed by bytes transferred; bursting: throughput grows with bytes stored."
    )
    efs_uid: Annotated[int, Field(ge=1000, le=65533)] = Field(
        1000, description="User and group id of every file in EFS; must be the trainer image's user id."
    )
    noncurrent_days: Days = Field(30, description="Days an overwritten or deleted checkpoint can be restored.")
    abort_upload_days: Days = Field(3, description="Days until an incomplete multipart upload is aborted.")
    infrequent_access_days: Annotated[int, Field(ge=30)] | None = Field(
        90, description="Days until a checkpoint moves to S3 Standard-IA; null: never."
    )


class DatabaseSettings(Section):
    """RDS for PostgreSQL, the backend store of MLflow."""

    instance_class: str = Field(
        "db.t4g.medium", pattern=r"^db\.[a-z0-9]+\.[a-z0-9]+$", description="DB instance class."
    )
    engine_version: str = Field("17", pattern=r"^\d{2}$", description="PostgreSQL major; RDS upgrades the minor.")
    allocated_gib: Annotated[int, Field(ge=20, le=65536)] = Field(20, description="Initial gp3 storage in GiB.")
    max_allocated_gib: Annotated[int, Field(ge=20, le=65536)] = Field(
        100, description="Limit of storage autoscaling in GiB."
    )
    multi_az: bool = Field(False, description="Standby in another zone, with automatic failover; doubles the price.")

    @model_validator(mode="after")
    def _storage_can_grow(self) -> DatabaseSettings:
        if self.max_allocated_gib < self.allocated_gib:
            raise ValueError(f"max_allocated_gib={self.max_allocated_gib} is below allocated_gib={self.allocated_gib}")
        return self


class RegistrySettings(Section):
    """ECR."""

    keep_images: PositiveInt = Field(50, description="Tagged images kept per repository, newest first.")
    untagged_days: Days = Field(7, description="Days until an untagged image is deleted.")
    pull_through: tuple[Literal["quay.io", "registry.k8s.io", "public.ecr.aws"], ...] = Field(
        (), description="Public registries cached by ECR pull-through cache rules; none needs credentials."
    )

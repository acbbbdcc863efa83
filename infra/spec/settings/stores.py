"""Stateful resources: file systems and S3, the database and the image registry."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from infra.spec.capacity import AvailabilityZone
from infra.spec.matching import Matching
from infra.spec.section import Section

Days = PositiveInt

BucketName = Annotated[
    str,
    Matching(
        r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$",
        "must be the name of a bucket: 3 to 63 lower-case letters, digits, dots and hyphens",
    ),
]
"""Name of a general purpose bucket (S3 user guide, "General purpose bucket naming rules")."""

BucketFolder = Annotated[
    str,
    Matching(
        r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.'()-]+)*$",
        "must be BUCKET or BUCKET/FOLDER, without a slash at the end and the characters *?$",
    ),
]
"""BUCKET or BUCKET/FOLDER; without `*`, `?` and `$`, which mean something in IAM policies."""


LustreTier = Literal["scratch", "persistent-125", "persistent-250", "persistent-500", "persistent-1000"]
"""SCRATCH_2, and PERSISTENT_2 with each throughput that SSD storage has (Amazon FSx API, PerUnitStorageThroughput)."""

LUSTRE_SERVER_GIB = 1200
"""Storage of the smallest file server."""


def _is_a_lustre_size(gib: int) -> int:
    if gib != LUSTRE_SERVER_GIB and (gib <= 0 or gib % (2 * LUSTRE_SERVER_GIB)):
        raise ValueError(f"must be {LUSTRE_SERVER_GIB} or a multiple of {2 * LUSTRE_SERVER_GIB}, as FSx demands")
    return gib


class LustreSettings(Section):
    """FSx for Lustre: a copy of an S3 folder on a parallel file system in one zone, read-only for every job.

    Sizes are those of the Amazon FSx API, CreateFileSystem, StorageCapacity.
    """

    source: Annotated[
        str,
        Matching(
            r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[\w-][\w.-]*)*$",
            "must be s3://BUCKET/FOLDER, whose folders have letters, digits, _, - and inner dots",
        ),
    ] = Field(
        description="Folder in S3, in the stack's region, whose objects and their changes the file system shows: "
        "s3://bucket/folder.",
    )
    availability_zone: AvailabilityZone = Field(
        description="Zone of the file servers; reads from nodes of another zone are slower and billed as traffic."
    )
    size_gib: Annotated[int, AfterValidator(_is_a_lustre_size)] = Field(
        1200, description="Storage in GiB: 1200 or a multiple of 2400. FSx can enlarge it, not shrink it."
    )
    tier: LustreTier = Field(
        "persistent-125",
        description="scratch: loses files with a file server, and has no key of the stack; persistent: replicated in its "
        "zone, with this many MB/s per TiB.",
    )

    @property
    def bucket(self) -> str:
        """Name of the bucket in `source`."""
        return self.source.removeprefix("s3://").partition("/")[0]

    @property
    def throughput(self) -> int | None:
        """MB/s per TiB of storage; None for scratch, whose throughput is not provisioned."""
        return None if self.tier == "scratch" else int(self.tier.removeprefix("persistent-"))

    @property
    def largest_servers(self) -> int:
        """Upper bound of the file servers, each with an address: one per 1200 GiB, and one for metadata."""
        return self.size_gib // LUSTRE_SERVER_GIB + 1


class StorageSettings(Section):
    """EFS for datasets and runs, S3 for checkpoints and artifacts, FSx for Lustre for datasets that many nodes read."""

    efs_throughput: Literal["elastic", "bursting"] = Field(
        "elastic", description="elastic: billed by bytes transferred; bursting: throughput grows with bytes stored."
    )
    efs_uid: Annotated[int, Field(ge=1000, le=65533)] = Field(
        1000, description="User and group id of every file in EFS; must be the trainer image's user id."
    )
    dataset_sources: tuple[BucketName, ...] = Field(
        (), description="S3 buckets, of any account, that `make data-sync` may copy to the datasets."
    )
    lustre: LustreSettings | None = Field(None, description="FSx for Lustre, mounted in jobs; null: none.")
    noncurrent_days: Days = Field(30, description="Days an overwritten or deleted checkpoint can be restored.")
    abort_upload_days: Days = Field(3, description="Days until an incomplete multipart upload is aborted.")
    infrequent_access_days: Annotated[int, Field(ge=30)] | None = Field(
        90, description="Days until a checkpoint moves to S3 Standard-IA; null: never."
    )


class DatabaseSettings(Section):
    """RDS for PostgreSQL, the backend store of MLflow."""

    instance_class: Annotated[
        str, Matching(r"^db\.[a-z0-9]+\.[a-z0-9]+$", "must be a DB instance class, e.g. db.t4g.medium")
    ] = Field("db.t4g.medium", description="DB instance class.")
    engine_version: Annotated[str, Matching(r"^\d{2}$", "must be a PostgreSQL major of two digits")] = Field(
        "17", description="PostgreSQL major; RDS upgrades the minor."
    )
    allocated_gib: Annotated[int, Field(ge=20, le=65536)] = Field(20, description="Initial gp3 storage in GiB.")
    max_allocated_gib: Annotated[int, Field(ge=20, le=65536)] = Field(
        100, description="Limit of storage autoscaling in GiB."
    )
    multi_az: bool = Field(False, description="Standby in another zone, with automatic failover; doubles the price.")
    apply_immediately: bool = Field(
        False, description="Restart for a change, e.g. of the class, at once; otherwise in the maintenance window."
    )
    allow_major_upgrade: bool = Field(
        False, description="Let a higher engine_version upgrade the database, at once and for good."
    )

    @model_validator(mode="after")
    def _storage_can_grow(self) -> DatabaseSettings:
        if self.max_allocated_gib <= self.allocated_gib:  # RDS refuses both
            raise ValueError(
                f"max_allocated_gib={self.max_allocated_gib} must be above allocated_gib={self.allocated_gib}"
            )
        return self


class RegistrySettings(Section):
    """ECR."""

    keep_images: PositiveInt = Field(
        50,
        description="Kept of each of our images, newest first; those of `make image FROM=…` are counted apart.",
    )
    untagged_days: Days = Field(7, description="Days until an untagged image is deleted.")
    pull_through: tuple[Literal["quay.io", "registry.k8s.io", "public.ecr.aws"], ...] = Field(
        (), description="Public registries cached by ECR pull-through cache rules; none needs credentials."
    )

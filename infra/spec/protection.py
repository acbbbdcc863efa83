"""Protection of an environment's stateful resources, by environment kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EnvironmentKind(StrEnum):
    """Kind of an environment; decides its protection."""

    DEV = "dev"
    STAGING = "staging"
    PROD = "prod"
    TEST = "test"


@dataclass(frozen=True, kw_only=True)
class Protection:
    """Protection of stateful resources.

    Attributes:
        protect: Pulumi refuses to delete or replace the resource until a separate change turns this off.
        retain_on_delete: Pulumi removes a deleted resource from its state but keeps it in AWS.
        deletion_protection: the AWS service itself refuses deletion (EKS, RDS).
        force_destroy: destroying a store deletes its content (S3 objects and versions, ECR images).
        final_snapshot: RDS takes a snapshot before the database is deleted.
        backup_days: days automatic backups are kept; 0 turns them off.
        kms_deletion_days: waiting period before a KMS key is deleted; AWS allows 7 to 30.
    """

    protect: bool
    retain_on_delete: bool
    deletion_protection: bool
    force_destroy: bool
    final_snapshot: bool
    backup_days: int
    kms_deletion_days: int


_PROTECTION = {
    EnvironmentKind.PROD: Protection(
        protect=True,
        retain_on_delete=True,
        deletion_protection=True,
        force_destroy=False,
        final_snapshot=True,
        backup_days=35,
        kms_deletion_days=30,
    ),
    EnvironmentKind.STAGING: Protection(
        protect=True,
        retain_on_delete=False,
        deletion_protection=True,
        force_destroy=False,
        final_snapshot=True,
        backup_days=7,
        kms_deletion_days=30,
    ),
    EnvironmentKind.DEV: Protection(
        protect=False,
        retain_on_delete=False,
        deletion_protection=False,
        force_destroy=False,
        final_snapshot=True,
        backup_days=1,
        kms_deletion_days=7,
    ),
    EnvironmentKind.TEST: Protection(
        protect=False,
        retain_on_delete=False,
        deletion_protection=False,
        force_destroy=True,
        final_snapshot=False,
        backup_days=0,
        kms_deletion_days=7,
    ),
}


def protection_of(kind: EnvironmentKind) -> Protection:
    """Protection of the stateful resources of an environment of this kind.

    Destroying a dev environment does not lose data by accident: its buckets must be emptied manually, and its database
    leaves a snapshot. A test cluster leaves nothing.
    """
    return _PROTECTION[kind]

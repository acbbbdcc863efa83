"""How hard it is to destroy an environment: a pure function of its kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EnvironmentKind(StrEnum):
    """What an environment is for, which decides what may be lost."""

    DEV = "dev"
    STAGING = "staging"
    PROD = "prod"
    TEST = "test"


@dataclass(frozen=True, kw_only=True)
class Protection:
    """What protects the stateful resources of an environment.

    Attributes:
        protect: Pulumi refuses to delete or replace the resource until a separate change turns this off.
        retain_on_delete: when a resource leaves the program, Pulumi forgets it and AWS keeps it.
        deletion_protection: the service itself refuses deletion (EKS, RDS).
        force_destroy: stores are emptied when they are destroyed (S3 objects and versions, ECR images).
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
    """What protects the stateful resources of an environment of this kind.

    A dev environment can be destroyed, but its data not by accident: its buckets have to be emptied by hand, and its
    database leaves a snapshot. A test cluster leaves nothing.
    """
    return _PROTECTION[kind]

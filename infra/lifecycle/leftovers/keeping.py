"""What a destroyed environment leaves on purpose."""

from __future__ import annotations

import re

from infra.lifecycle.leftovers.found import Found
from infra.lifecycle.leftovers.kinds import content, databases, file_systems, identity
from infra.spec.protection import EnvironmentKind, protection_of

_RETAINED = frozenset(
    {
        content.BUCKET,
        content.REPOSITORY,
        databases.INSTANCE,
        file_systems.EFS,
        "EFS access point",
        identity.KEY,
    }
)
"""Kinds that have `retainOnDelete` in prod (`infra.aws.context.protected_opts`)."""

_STATE_BUCKET = re.compile(r"-state-\d{12}$")


def reason_to_keep(found: Found, kind: EnvironmentKind) -> str | None:
    """Why a resource outlives an environment of this kind; None if it should not.

    Args:
        found: a resource of the environment.
        kind: kind of the environment.
    """
    protection = protection_of(kind)
    if found.kind == content.BUCKET and _STATE_BUCKET.search(found.id):
        return "Pulumi's state; delete it when `pulumi stack rm` has removed the stack"
    if found.kind in _RETAINED and protection.retain_on_delete:
        return f"retained in {kind.value}: it holds data"
    if found.kind == databases.SNAPSHOT and protection.final_snapshot and f"{found.name}-final-" in found.id:
        return f"final snapshot, which {kind.value} leaves"
    if found.kind == databases.RETAINED_BACKUP and not protection.force_destroy:
        return f"backups of the database, which RDS deletes after {protection.backup_days} days"
    if found.kind == file_systems.RECOVERY_POINT and protection.backup_days:
        return "backup of the file system, which AWS Backup deletes when it expires"
    return None

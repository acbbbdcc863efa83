"""What may not be lost is hard to delete, and can be brought back."""

from __future__ import annotations

from collections.abc import Iterator

from infra.policy import tokens
from infra.policy.graph import UNKNOWN, Graph, Subject
from infra.policy.rule import Breach, resource_rule, stack_rule
from infra.spec.protection import EnvironmentKind, protection_of

STATEFUL = (tokens.BUCKET, tokens.DATABASE, tokens.FILE_SYSTEM, tokens.KEY, tokens.REPOSITORY)
"""Types whose resources hold what cannot be made again."""


@resource_rule(*STATEFUL, remedy="take protect from infra.spec.protection.protection_of")
def stores_are_protected(store: Subject) -> Iterator[str]:
    """In staging and prod Pulumi refuses to delete or replace what holds state."""
    if store.is_guarded and not store.protect:
        yield f"is not protected, in {store.kind}"


@resource_rule(
    tokens.DATABASE, tokens.CLUSTER, remedy="take deletion_protection from infra.spec.protection.protection_of"
)
def services_refuse_deletion(subject: Subject) -> Iterator[str]:
    """In staging and prod the database and the cluster refuse deletion themselves, whoever asks."""
    if subject.is_guarded and not subject.says("deletionProtection", True):
        yield f"deletionProtection is {subject.get('deletionProtection')}, in {subject.kind}"


@resource_rule(tokens.BUCKET, tokens.REPOSITORY, remedy="take force_destroy from infra.spec.protection.protection_of")
def only_test_stores_are_emptied(store: Subject) -> Iterator[str]:
    """Nowhere but in a test cluster is a store emptied because it is destroyed."""
    is_forced = not store.says("forceDestroy", False, None) or not store.says("forceDelete", False, None)
    if is_forced and store.kind is not EnvironmentKind.TEST:
        yield f"is emptied when it is destroyed, in {store.kind}"


@resource_rule(tokens.DATABASE, remedy="take backup_days and final_snapshot from infra.spec.protection.protection_of")
def databases_are_backed_up(database: Subject) -> Iterator[str]:
    """A database keeps the backups its environment promises, and leaves a snapshot behind outside test clusters."""
    promised = protection_of(database.kind)
    days = database.get("backupRetentionPeriod")
    if days is not UNKNOWN and (days or 0) < promised.backup_days:
        yield f"keeps {days or 0} days of backups, {database.kind} promises {promised.backup_days}"
    if promised.final_snapshot and not database.says("skipFinalSnapshot", False, None):
        yield f"leaves no final snapshot, in {database.kind}"


@stack_rule(remedy="give the file system a BackupPolicy with status ENABLED")
def file_systems_are_backed_up(graph: Graph) -> Iterator[Breach]:
    """In staging and prod every file system is in AWS Backup."""
    for file_system in graph.of(tokens.FILE_SYSTEM):
        policies = graph.about(file_system, tokens.FILE_SYSTEM_BACKUP, "fileSystemId")
        if file_system.is_guarded and not any(one.says("backupPolicy.status", "ENABLED") for one in policies):
            yield Breach(file_system, f"has no backup, in {file_system.kind}")


@stack_rule(remedy="give the bucket a BucketVersioning with status Enabled")
def buckets_are_versioned(graph: Graph) -> Iterator[Breach]:
    """Every bucket keeps what is overwritten or deleted for a while: a checkpoint can be brought back."""
    for bucket in graph.of(tokens.BUCKET):
        versionings = graph.about(bucket, tokens.BUCKET_VERSIONING, "bucket")
        if not any(one.says("versioningConfiguration.status", "Enabled") for one in versionings):
            yield Breach(bucket, "is not versioned")


@stack_rule(remedy="give the bucket a BucketLifecycleConfiguration with both rules")
def buckets_forget_what_nobody_needs(graph: Graph) -> Iterator[Breach]:
    """Every bucket throws old versions and unfinished uploads away, which are billed and listed nowhere."""
    for bucket in graph.of(tokens.BUCKET):
        configurations = graph.about(bucket, tokens.BUCKET_LIFECYCLE, "bucket")
        rules = [rule for one in configurations for rule in one.each("rules") if rule.get("status") != "Disabled"]
        for block in ("noncurrentVersionExpiration", "abortIncompleteMultipartUpload"):
            if not any(rule.get(block) for rule in rules):
                yield Breach(bucket, f"has no lifecycle rule with {block}")

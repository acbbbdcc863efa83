"""Deletion protection, backups and retention of state."""

from __future__ import annotations

from collections.abc import Iterator

from infra.policy import tokens
from infra.policy.graph import UNKNOWN, Graph, Resource
from infra.policy.rule import Violation, resource_rule, stack_rule
from infra.spec.protection import EnvironmentKind, protection_of

STATEFUL_TYPES = (
    tokens.BUCKET,
    tokens.DATABASE,
    tokens.FILE_SYSTEM,
    tokens.KEY,
    tokens.LUSTRE,
    tokens.REPOSITORY,
)
"""Types of resources that hold state."""


@resource_rule(*STATEFUL_TYPES, remedy="take protect from infra.spec.protection.protection_of")
def stateful_resources_are_protected(store: Resource) -> Iterator[str]:
    """In staging and prod, resources with state are protected from deletion by Pulumi."""
    if store.needs_protection and not store.protect:
        yield f"is not protected, in {store.kind}"


@resource_rule(
    tokens.DATABASE, tokens.CLUSTER, remedy="take deletion_protection from infra.spec.protection.protection_of"
)
def deletion_protection_is_enabled(resource: Resource) -> Iterator[str]:
    """In staging and prod, AWS's deletion protection is enabled for the database and the cluster."""
    if resource.needs_protection and not resource.is_one_of("deletionProtection", True):
        yield f"deletionProtection is {resource.get('deletionProtection')}, in {resource.kind}"


@resource_rule(tokens.BUCKET, tokens.REPOSITORY, remedy="take force_destroy from infra.spec.protection.protection_of")
def only_test_clusters_force_destroy(store: Resource) -> Iterator[str]:
    """Only test clusters destroy buckets and repositories that are not empty."""
    is_forced = not store.is_one_of("forceDestroy", False, None) or not store.is_one_of("forceDelete", False, None)
    if is_forced and store.kind is not EnvironmentKind.TEST:
        yield f"is force-destroyed with its contents, in {store.kind}"


@resource_rule(tokens.DATABASE, remedy="take backup_days and final_snapshot from infra.spec.protection.protection_of")
def databases_are_backed_up(database: Resource) -> Iterator[str]:
    """Databases keep the backups that their kind of environment requires, and a final snapshot."""
    required = protection_of(database.kind)
    days = database.get("backupRetentionPeriod")
    if days is not UNKNOWN and (days or 0) < required.backup_days:
        yield f"keeps {days or 0} days of backups, {database.kind} requires {required.backup_days}"
    if required.final_snapshot and not database.is_one_of("skipFinalSnapshot", False, None):
        yield f"skips the final snapshot, in {database.kind}"


@stack_rule(remedy="give the file system a BackupPolicy with status ENABLED")
def file_systems_are_backed_up(graph: Graph) -> Iterator[Violation]:
    """In staging and prod, AWS Backup covers every file system."""
    for file_system in graph.of_type(tokens.FILE_SYSTEM):
        policies = graph.referring_to(file_system, tokens.FILE_SYSTEM_BACKUP, "fileSystemId")
        if file_system.needs_protection and not any(
            one.is_one_of("backupPolicy.status", "ENABLED") for one in policies
        ):
            yield Violation(file_system, f"has no backup, in {file_system.kind}")


@stack_rule(remedy="give the bucket a BucketVersioning with status Enabled")
def buckets_are_versioned(graph: Graph) -> Iterator[Violation]:
    """Every bucket is versioned, so that overwritten and deleted objects can be restored."""
    for bucket in graph.of_type(tokens.BUCKET):
        versionings = graph.referring_to(bucket, tokens.BUCKET_VERSIONING, "bucket")
        if not any(one.is_one_of("versioningConfiguration.status", "Enabled") for one in versionings):
            yield Violation(bucket, "is not versioned")


@stack_rule(remedy="give the bucket a BucketLifecycleConfiguration with both rules")
def buckets_have_lifecycle_rules(graph: Graph) -> Iterator[Violation]:
    """Every bucket expires noncurrent versions and incomplete uploads, which AWS bills without listing them."""
    for bucket in graph.of_type(tokens.BUCKET):
        configurations = graph.referring_to(bucket, tokens.BUCKET_LIFECYCLE, "bucket")
        rules = [rule for one in configurations for rule in one.elements("rules") if rule.get("status") != "Disabled"]
        for block in ("noncurrentVersionExpiration", "abortIncompleteMultipartUpload"):
            if not any(rule.get(block) for rule in rules):
                yield Violation(bucket, f"has no lifecycle rule with {block}")

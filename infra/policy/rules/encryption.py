"""Encryption at rest with customer managed keys, and encryption in transit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.policy import tokens
from infra.policy.documents import denies_insecure_transport
from infra.policy.graph import UNKNOWN, Graph, Resource
from infra.policy.rule import Violation, resource_rule, stack_rule

_MIN_DELETION_WINDOW_DAYS = 7


@stack_rule(remedy="give the bucket a BucketServerSideEncryptionConfiguration with aws:kms and a key")
def buckets_use_kms_encryption(graph: Graph) -> Iterator[Violation]:
    """Every bucket uses SSE-KMS with a customer managed key, so that reading requires a revocable permission.

    Targets of access logs support SSE-S3 only (S3 user guide, "Enabling Amazon S3 server access logging").
    """
    for bucket in graph.of_type(tokens.BUCKET):
        takes_access_logs = any(graph.referring_to(bucket, tokens.BUCKET_LOGGING, "targetBucket"))
        configurations = graph.referring_to(bucket, tokens.BUCKET_ENCRYPTION, "bucket")
        rules = [rule for one in configurations for rule in one.elements("rules")]
        defaults = [rule.get("applyServerSideEncryptionByDefault") or {} for rule in rules]
        if not any(_has_key(one) or (takes_access_logs and one.get("sseAlgorithm") == "AES256") for one in defaults):
            yield Violation(bucket, "is not encrypted with a KMS key")


def _has_key(default: Mapping[str, object]) -> bool:
    return default.get("sseAlgorithm") in {"aws:kms", "aws:kms:dsse"} and bool(default.get("kmsMasterKeyId"))


@resource_rule(tokens.DATABASE, remedy="set storage_encrypted=True and kms_key_id")
def databases_are_encrypted(database: Resource) -> Iterator[str]:
    """Databases are encrypted with a customer managed key; encryption cannot be enabled later."""
    if not database.is_one_of("storageEncrypted", True):
        yield f"storageEncrypted is {database.get('storageEncrypted')}"
    if not database.is_set("kmsKeyId"):
        yield "kmsKeyId is not set"


@resource_rule(tokens.FILE_SYSTEM, remedy="set encrypted=True and kms_key_id")
def file_systems_are_encrypted(file_system: Resource) -> Iterator[str]:
    """File systems are encrypted with a customer managed key; encryption cannot be enabled later."""
    if not file_system.is_one_of("encrypted", True):
        yield f"encrypted is {file_system.get('encrypted')}"
    if not file_system.is_set("kmsKeyId"):
        yield "kmsKeyId is not set"


@resource_rule(tokens.LUSTRE, remedy="set deployment_type to PERSISTENT_2, and kms_key_id")
def lustre_is_encrypted_with_a_key(file_system: Resource) -> Iterator[str]:
    """Lustre file systems are encrypted with a customer managed key; the scratch types support none, so dev and test only use them."""
    type_ = file_system.get("deploymentType") or "SCRATCH_1"
    if str(type_).startswith("SCRATCH"):
        if file_system.needs_protection:
            yield f"is of type {type_}, in {file_system.kind}"
    elif not file_system.is_set("kmsKeyId"):
        yield "kmsKeyId is not set"


@resource_rule(tokens.LAUNCH_TEMPLATE, remedy="map the root device to an encrypted gp3 volume")
def node_volumes_are_encrypted(template: Resource) -> Iterator[str]:
    """Node volumes are encrypted gp3 volumes; they hold images, logs and cached datasets."""
    mappings = template.elements("blockDeviceMappings")
    if not mappings:
        yield "has no blockDeviceMappings, so nodes use the AMI's unencrypted volume"
    for mapping in mappings:
        ebs = mapping.get("ebs") or {}
        if ebs.get("encrypted") not in {"true", True, UNKNOWN}:
            yield f"volume {mapping.get('deviceName')} is not encrypted"
        if ebs.get("volumeType") not in {"gp3", UNKNOWN}:
            yield f"volume {mapping.get('deviceName')} is of type {ebs.get('volumeType')}, not gp3"


@resource_rule(tokens.CLUSTER, remedy="set encryption_config with the stack's key for secrets")
def cluster_secrets_are_encrypted(cluster: Resource) -> Iterator[str]:
    """Kubernetes secrets are envelope-encrypted with a customer managed key."""
    if "secrets" not in cluster.elements("encryptionConfig.resources"):
        yield "encryptionConfig does not cover secrets"
    elif not cluster.is_set("encryptionConfig.provider.keyArn"):
        yield "encryptionConfig has no key"


@resource_rule(tokens.REPOSITORY, remedy="set encryption_configurations with encryption_type KMS and a key")
def repositories_are_encrypted(repository: Resource) -> Iterator[str]:
    """Repositories are encrypted with a customer managed key; it cannot be changed later."""
    configurations = repository.elements("encryptionConfigurations")
    if not any(one.get("encryptionType") == "KMS" and one.get("kmsKey") for one in configurations):
        yield "is not encrypted with a KMS key"


@resource_rule(tokens.LOG_GROUP, remedy="set kms_key_id to a key whose policy allows CloudWatch Logs")
def log_groups_are_encrypted(group: Resource) -> Iterator[str]:
    """Log groups are encrypted with a customer managed key; audit logs contain personal data."""
    if not group.is_set("kmsKeyId"):
        yield "kmsKeyId is not set"


@resource_rule(tokens.KEY, remedy="set enable_key_rotation=True and a deletion window of at least 7 days")
def keys_rotate_and_have_a_deletion_window(key: Resource) -> Iterator[str]:
    """Keys rotate every year, and their deletion can be cancelled for at least a week."""
    if not key.is_one_of("enableKeyRotation", True):
        yield f"enableKeyRotation is {key.get('enableKeyRotation')}"
    window = key.get("deletionWindowInDays")
    if window is not UNKNOWN and (window is None or window < _MIN_DELETION_WINDOW_DAYS):
        yield f"deletionWindowInDays is {window}"


@stack_rule(remedy="attach a BucketPolicy that denies s3:* where aws:SecureTransport is false")
def buckets_require_tls(graph: Graph) -> Iterator[Violation]:
    """Every bucket denies requests without TLS."""
    for bucket in graph.of_type(tokens.BUCKET):
        policies = graph.referring_to(bucket, tokens.BUCKET_POLICY, "bucket")
        if not any(denies_insecure_transport(policy.get("policy")) for policy in policies):
            yield Violation(bucket, "has no policy that denies requests without TLS")


@stack_rule(remedy="attach a FileSystemPolicy that denies access where aws:SecureTransport is false")
def file_systems_require_tls(graph: Graph) -> Iterator[Violation]:
    """Every file system denies mounts without TLS; any policy also denies mounts without IAM."""
    for file_system in graph.of_type(tokens.FILE_SYSTEM):
        policies = graph.referring_to(file_system, tokens.FILE_SYSTEM_POLICY, "fileSystemId")
        if not any(denies_insecure_transport(policy.get("policy")) for policy in policies):
            yield Violation(file_system, "has no policy that denies mounts without TLS")


@stack_rule(remedy="give the database a ParameterGroup with rds.force_ssl = 1")
def databases_require_tls(graph: Graph) -> Iterator[Violation]:
    """Every database rejects connections without TLS."""
    groups = {group.urn: group for group in graph.of_type(tokens.DATABASE_PARAMETERS)}
    for database in graph.of_type(tokens.DATABASE):
        of_database = [groups[urn] for urn in database.references.get("parameterGroupName", ()) if urn in groups]
        parameters = [one for group in of_database for one in group.elements("parameters")]
        if not any(one.get("name") == "rds.force_ssl" and str(one.get("value")) == "1" for one in parameters):
            yield Violation(database, "has no parameter group with rds.force_ssl = 1")

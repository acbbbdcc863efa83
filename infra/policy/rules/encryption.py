"""Encryption at rest with keys of the stack's own, and encryption on the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.policy import tokens
from infra.policy.documents import denies_plain_transport
from infra.policy.graph import UNKNOWN, Graph, Subject
from infra.policy.rule import Breach, resource_rule, stack_rule

_MIN_WAIT_DAYS = 7


@stack_rule(remedy="give the bucket a BucketServerSideEncryptionConfiguration with aws:kms and a key")
def buckets_are_encrypted_with_a_key(graph: Graph) -> Iterator[Breach]:
    """Every bucket encrypts with a KMS key of the stack, so that reading it needs a permission that can be taken away.

    A bucket that S3 delivers access logs to cannot (S3 user guide, "Enabling Amazon S3 server access logging").
    """
    for bucket in graph.of(tokens.BUCKET):
        takes_access_logs = any(graph.about(bucket, tokens.BUCKET_LOGGING, "targetBucket"))
        configurations = graph.about(bucket, tokens.BUCKET_ENCRYPTION, "bucket")
        rules = [rule for one in configurations for rule in one.each("rules")]
        defaults = [rule.get("applyServerSideEncryptionByDefault") or {} for rule in rules]
        if not any(_has_key(one) or (takes_access_logs and one.get("sseAlgorithm") == "AES256") for one in defaults):
            yield Breach(bucket, "has no encryption by a KMS key")


def _has_key(default: Mapping[str, object]) -> bool:
    return default.get("sseAlgorithm") in {"aws:kms", "aws:kms:dsse"} and bool(default.get("kmsMasterKeyId"))


@resource_rule(tokens.DATABASE, remedy="set storage_encrypted=True and kms_key_id")
def databases_are_encrypted(database: Subject) -> Iterator[str]:
    """A database's storage and snapshots are encrypted with a key of the stack; it cannot be done afterwards."""
    if not database.says("storageEncrypted", True):
        yield f"storageEncrypted is {database.get('storageEncrypted')}"
    if not database.has("kmsKeyId"):
        yield "kmsKeyId is not set"


@resource_rule(tokens.FILE_SYSTEM, remedy="set encrypted=True and kms_key_id")
def file_systems_are_encrypted(file_system: Subject) -> Iterator[str]:
    """A file system is encrypted with a key of the stack; it cannot be done afterwards."""
    if not file_system.says("encrypted", True):
        yield f"encrypted is {file_system.get('encrypted')}"
    if not file_system.has("kmsKeyId"):
        yield "kmsKeyId is not set"


@resource_rule(tokens.LAUNCH_TEMPLATE, remedy="map the root device to an encrypted gp3 volume")
def node_volumes_are_encrypted(template: Subject) -> Iterator[str]:
    """Every volume of a node is an encrypted gp3: images, logs and datasets in flight lie there."""
    mappings = template.each("blockDeviceMappings")
    if not mappings:
        yield "has no blockDeviceMappings, so the AMI's own unencrypted volume is used"
    for mapping in mappings:
        ebs = mapping.get("ebs") or {}
        if ebs.get("encrypted") not in {"true", True, UNKNOWN}:
            yield f"volume {mapping.get('deviceName')} is not encrypted"
        if ebs.get("volumeType") not in {"gp3", UNKNOWN}:
            yield f"volume {mapping.get('deviceName')} is of type {ebs.get('volumeType')}, not gp3"


@resource_rule(tokens.CLUSTER, remedy="set encryption_config with the stack's key for secrets")
def cluster_secrets_are_encrypted(cluster: Subject) -> Iterator[str]:
    """Kubernetes secrets are envelope-encrypted with a key of the stack, not only with EKS's own."""
    if "secrets" not in cluster.each("encryptionConfig.resources"):
        yield "encryptionConfig does not cover secrets"
    elif not cluster.has("encryptionConfig.provider.keyArn"):
        yield "encryptionConfig names no key"


@resource_rule(tokens.REPOSITORY, remedy="set encryption_configurations with encryption_type KMS and a key")
def images_are_encrypted(repository: Subject) -> Iterator[str]:
    """Images are encrypted with a key of the stack; a repository cannot be changed afterwards."""
    configurations = repository.each("encryptionConfigurations")
    if not any(one.get("encryptionType") == "KMS" and one.get("kmsKey") for one in configurations):
        yield "is not encrypted with a KMS key"


@resource_rule(tokens.LOG_GROUP, remedy="set kms_key_id to a key whose policy admits CloudWatch Logs")
def logs_are_encrypted(group: Subject) -> Iterator[str]:
    """Log groups are encrypted with a key of the stack: audit logs name people and their requests."""
    if not group.has("kmsKeyId"):
        yield "kmsKeyId is not set"


@resource_rule(tokens.KEY, remedy="set enable_key_rotation=True and a deletion window of at least 7 days")
def keys_rotate_and_wait_before_they_go(key: Subject) -> Iterator[str]:
    """A key rotates every year, and its deletion, which loses all it encrypts, can be called off for a week or more."""
    if not key.says("enableKeyRotation", True):
        yield f"enableKeyRotation is {key.get('enableKeyRotation')}"
    window = key.get("deletionWindowInDays")
    if window is not UNKNOWN and (window is None or window < _MIN_WAIT_DAYS):
        yield f"deletionWindowInDays is {window}"


@stack_rule(remedy="attach a BucketPolicy that denies s3:* where aws:SecureTransport is false")
def buckets_refuse_plain_http(graph: Graph) -> Iterator[Breach]:
    """Every bucket refuses requests without TLS, whoever makes them."""
    for bucket in graph.of(tokens.BUCKET):
        policies = graph.about(bucket, tokens.BUCKET_POLICY, "bucket")
        if not any(denies_plain_transport(policy.get("policy")) for policy in policies):
            yield Breach(bucket, "has no policy that denies requests without TLS")


@stack_rule(remedy="attach a FileSystemPolicy that denies access where aws:SecureTransport is false")
def file_systems_refuse_plain_mounts(graph: Graph) -> Iterator[Breach]:
    """Every file system refuses mounts without TLS, and with a policy attached, mounts without an IAM identity too."""
    for file_system in graph.of(tokens.FILE_SYSTEM):
        policies = graph.about(file_system, tokens.FILE_SYSTEM_POLICY, "fileSystemId")
        if not any(denies_plain_transport(policy.get("policy")) for policy in policies):
            yield Breach(file_system, "has no policy that denies mounts without TLS")


@stack_rule(remedy="give the database a ParameterGroup with rds.force_ssl = 1")
def databases_refuse_plain_connections(graph: Graph) -> Iterator[Breach]:
    """Every database refuses connections without TLS."""
    groups = {group.urn: group for group in graph.of(tokens.DATABASE_PARAMETERS)}
    for database in graph.of(tokens.DATABASE):
        of_database = [groups[urn] for urn in database.references.get("parameterGroupName", ()) if urn in groups]
        parameters = [one for group in of_database for one in group.each("parameters")]
        if not any(one.get("name") == "rds.force_ssl" and str(one.get("value")) == "1" for one in parameters):
            yield Breach(database, "has no parameter group with rds.force_ssl = 1")

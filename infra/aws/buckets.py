"""A bucket as every bucket of the stack is."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.aws.iam import Statement, policy
from infra.spec.protection import Protection

_OLDEST_TLS = "1.2"


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long a bucket keeps what.

    Attributes:
        noncurrent_days: days an overwritten or deleted object can be brought back.
        abort_upload_days: days after which an unfinished upload is thrown away.
        infrequent_access_days: days after which an object moves to Standard-IA; None never.
        expire_days: days after which an object is deleted; None never.
    """

    noncurrent_days: int
    abort_upload_days: int
    infrequent_access_days: int | None = None
    expire_days: int | None = None


@dataclass(frozen=True, kw_only=True)
class AccessLog:
    """Where a bucket's access log goes: S3's log delivery writes it, into a bucket that admits it."""

    bucket: pulumi.Input[str]
    prefix: str


@dataclass(frozen=True, kw_only=True)
class BucketArgs:
    """One bucket.

    Attributes:
        bucket: physical name.
        key_arn: KMS key; None encrypts with S3's own, which a target of S3's access logs has to (S3 user guide,
            "Enabling Amazon S3 server access logging").
        retention: how long it keeps what.
        protection: what guards it.
        access_log: where its access log goes; None for the target itself.
        log_source_account: account whose access logs it takes; None takes none.
    """

    bucket: pulumi.Input[str]
    key_arn: pulumi.Input[str] | None
    retention: Retention
    protection: Protection
    access_log: AccessLog | None = None
    log_source_account: pulumi.Input[str] | None = None


class Bucket(pulumi.ComponentResource):
    """A bucket with versions, TLS only, no public access, no ACLs, and an end to what nobody needs.

    Every part carries the bucket's own guards: without its policy or its versions a bucket that is kept is no safe one.

    Attributes:
        name: physical name.
        arn: its ARN.
    """

    name: pulumi.Output[str]
    arn: pulumi.Output[str]

    def __init__(self, name: str, args: BucketArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:Bucket", name, None, opts)
        self._name = name
        self._args = args
        self._guarded = pulumi.ResourceOptions(
            parent=self, protect=args.protection.protect, retain_on_delete=args.protection.retain_on_delete
        )
        bucket = aws.s3.Bucket(
            name, bucket=args.bucket, force_destroy=args.protection.force_destroy, opts=self._guarded
        )
        self.name, self.arn = bucket.bucket, bucket.arn
        self._close()
        self._encrypt()
        self._keep_versions()
        if args.access_log is not None:
            aws.s3.BucketLogging(
                name,
                bucket=self.name,
                target_bucket=args.access_log.bucket,
                target_prefix=args.access_log.prefix,
                opts=self._guarded,
            )
        self.register_outputs({"name": self.name, "arn": self.arn})

    def _close(self) -> None:
        block = aws.s3.BucketPublicAccessBlock(
            self._name,
            bucket=self.name,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=self._guarded,
        )
        aws.s3.BucketOwnershipControls(
            self._name,
            bucket=self.name,
            rule=aws.s3.BucketOwnershipControlsRuleArgs(object_ownership="BucketOwnerEnforced"),
            opts=self._guarded,
        )
        # S3 refuses two changes of a bucket's access at once (OperationAborted).
        after = pulumi.ResourceOptions.merge(self._guarded, pulumi.ResourceOptions(depends_on=[block]))
        aws.s3.BucketPolicy(self._name, bucket=self.name, policy=policy(self._statements()), opts=after)

    def _statements(self) -> list[Statement]:
        everything = (self.arn, pulumi.Output.concat(self.arn, "/*"))
        statements = [
            Statement(
                sid="TlsOnly",
                effect="Deny",
                principal="*",
                actions=("s3:*",),
                resources=everything,
                condition={"Bool": {"aws:SecureTransport": "false"}},
            ),
            Statement(
                sid="NoOldTls",
                effect="Deny",
                principal="*",
                actions=("s3:*",),
                resources=everything,
                condition={"NumericLessThan": {"s3:TlsVersion": _OLDEST_TLS}},
            ),
        ]
        if self._args.log_source_account is not None:
            statements.append(
                Statement(
                    sid="AccessLogsOfThisAccount",
                    principal={"Service": "logging.s3.amazonaws.com"},
                    actions=("s3:PutObject",),
                    resources=(pulumi.Output.concat(self.arn, "/*"),),
                    condition={"StringEquals": {"aws:SourceAccount": self._args.log_source_account}},
                )
            )
        return statements

    def _encrypt(self) -> None:
        key = self._args.key_arn
        default = aws.s3.BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs(
            sse_algorithm="AES256" if key is None else "aws:kms", kms_master_key_id=key
        )
        aws.s3.BucketServerSideEncryptionConfiguration(
            self._name,
            bucket=self.name,
            rules=[
                aws.s3.BucketServerSideEncryptionConfigurationRuleArgs(
                    apply_server_side_encryption_by_default=default,
                    # One data key per bucket and hour instead of one per object: KMS is billed, and throttled, by call.
                    bucket_key_enabled=key is not None,
                )
            ],
            opts=self._guarded,
        )

    def _keep_versions(self) -> None:
        versioning = aws.s3.BucketVersioning(
            self._name,
            bucket=self.name,
            versioning_configuration=aws.s3.BucketVersioningVersioningConfigurationArgs(status="Enabled"),
            opts=self._guarded,
        )
        # Rules on versions are refused before there are versions.
        after = pulumi.ResourceOptions.merge(self._guarded, pulumi.ResourceOptions(depends_on=[versioning]))
        aws.s3.BucketLifecycleConfiguration(self._name, bucket=self.name, rules=[self._lifecycle()], opts=after)

    def _lifecycle(self) -> aws.s3.BucketLifecycleConfigurationRuleArgs:
        keep = self._args.retention
        return aws.s3.BucketLifecycleConfigurationRuleArgs(
            id="retention",
            status="Enabled",
            filter=aws.s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=""),
            abort_incomplete_multipart_upload=aws.s3.BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs(
                days_after_initiation=keep.abort_upload_days
            ),
            noncurrent_version_expiration=aws.s3.BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs(
                noncurrent_days=keep.noncurrent_days
            ),
            # Without days: markers under which no version is left, which make listing slow and cost nothing to drop.
            expiration=aws.s3.BucketLifecycleConfigurationRuleExpirationArgs(days=keep.expire_days)
            if keep.expire_days
            else aws.s3.BucketLifecycleConfigurationRuleExpirationArgs(expired_object_delete_marker=True),
            transitions=[
                aws.s3.BucketLifecycleConfigurationRuleTransitionArgs(
                    days=keep.infrequent_access_days, storage_class="STANDARD_IA"
                )
            ]
            if keep.infrequent_access_days
            else None,
        )

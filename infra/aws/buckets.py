"""The S3 bucket component that the whole stack uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from infra.aws.context import protected_opts
from infra.aws.iam import Statement, deny_without_tls, policy_document
from infra.spec.protection import Protection

_OLDEST_TLS = "1.2"


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Lifecycle of a bucket's objects.

    Attributes:
        noncurrent_days: days for which an overwritten or deleted object can be restored.
        abort_upload_days: days after which an incomplete multipart upload is aborted.
        infrequent_access_days: days after which an object moves to Standard-IA; None for never.
        expire_days: days after which an object expires; None for never.
        folder_days: days after which the objects of a folder expire, by folder.
    """

    noncurrent_days: int
    abort_upload_days: int
    infrequent_access_days: int | None = None
    expire_days: int | None = None
    folder_days: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AccessLog:
    """Target of a bucket's server access logs; the target's policy must allow log delivery."""

    bucket: pulumi.Input[str]
    prefix: str


@dataclass(frozen=True, kw_only=True)
class BucketArgs:
    """Inputs of `Bucket`.

    Attributes:
        bucket: physical name.
        key_arn: KMS key; None uses SSE-S3, the only encryption that a target of access logs supports (S3 user guide,
            "Enabling Amazon S3 server access logging").
        retention: lifecycle of the objects.
        protection: deletion protection.
        access_log: target of the access logs; None for the target itself.
        log_source_account: account that may deliver access logs here; None for none.
    """

    bucket: pulumi.Input[str]
    key_arn: pulumi.Input[str] | None
    retention: Retention
    protection: Protection
    access_log: AccessLog | None = None
    log_source_account: pulumi.Input[str] | None = None


class Bucket(pulumi.ComponentResource):
    """A versioned bucket with TLS required, public access blocked, ACLs disabled and a lifecycle.

    Every child carries the bucket's deletion protection: a retained bucket needs its policy and its versioning.

    Attributes:
        name: physical name.
        arn: ARN of the bucket.
    """

    name: pulumi.Output[str]
    arn: pulumi.Output[str]

    def __init__(self, name: str, args: BucketArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:Bucket", name, None, opts)
        self._name = name
        self._args = args
        self._protected_opts = protected_opts(self, args.protection)
        bucket = aws.s3.Bucket(
            name, bucket=args.bucket, force_destroy=args.protection.force_destroy, opts=self._protected_opts
        )
        self.name, self.arn = bucket.bucket, bucket.arn
        self._restrict_access()
        self._enable_encryption()
        self._enable_versioning()
        if args.access_log is not None:
            aws.s3.BucketLogging(
                name,
                bucket=self.name,
                target_bucket=args.access_log.bucket,
                target_prefix=args.access_log.prefix,
                opts=self._protected_opts,
            )
        self.register_outputs({"name": self.name, "arn": self.arn})

    def _restrict_access(self) -> None:
        block = aws.s3.BucketPublicAccessBlock(
            self._name,
            bucket=self.name,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=self._protected_opts,
        )
        aws.s3.BucketOwnershipControls(
            self._name,
            bucket=self.name,
            rule=aws.s3.BucketOwnershipControlsRuleArgs(object_ownership="BucketOwnerEnforced"),
            opts=self._protected_opts,
        )
        # S3 rejects concurrent changes of a bucket's access settings (OperationAborted).
        after = pulumi.ResourceOptions.merge(self._protected_opts, pulumi.ResourceOptions(depends_on=[block]))
        aws.s3.BucketPolicy(self._name, bucket=self.name, policy=policy_document(self._policy_statements()), opts=after)

    def _policy_statements(self) -> list[Statement]:
        bucket_and_objects = (self.arn, pulumi.Output.concat(self.arn, "/*"))
        statements = [
            deny_without_tls("s3:*", bucket_and_objects),
            Statement(
                sid="NoOldTls",
                effect="Deny",
                principal="*",
                actions=("s3:*",),
                resources=bucket_and_objects,
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

    def _enable_encryption(self) -> None:
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
                    # Bucket keys save a KMS request per object; KMS bills and throttles by request.
                    bucket_key_enabled=key is not None,
                )
            ],
            opts=self._protected_opts,
        )

    def _enable_versioning(self) -> None:
        versioning = aws.s3.BucketVersioning(
            self._name,
            bucket=self.name,
            versioning_configuration=aws.s3.BucketVersioningVersioningConfigurationArgs(status="Enabled"),
            opts=self._protected_opts,
        )
        # S3 rejects rules on noncurrent versions before versioning is enabled.
        after = pulumi.ResourceOptions.merge(self._protected_opts, pulumi.ResourceOptions(depends_on=[versioning]))
        aws.s3.BucketLifecycleConfiguration(
            self._name, bucket=self.name, rules=[self._lifecycle_rule(), *self._folder_rules()], opts=after
        )

    def _lifecycle_rule(self) -> aws.s3.BucketLifecycleConfigurationRuleArgs:
        retention = self._args.retention
        return aws.s3.BucketLifecycleConfigurationRuleArgs(
            id="retention",
            status="Enabled",
            filter=aws.s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=""),
            abort_incomplete_multipart_upload=aws.s3.BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs(
                days_after_initiation=retention.abort_upload_days
            ),
            noncurrent_version_expiration=aws.s3.BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs(
                noncurrent_days=retention.noncurrent_days
            ),
            # Without an age: delete markers that have no versions left, which slow listing down.
            expiration=aws.s3.BucketLifecycleConfigurationRuleExpirationArgs(days=retention.expire_days)
            if retention.expire_days
            else aws.s3.BucketLifecycleConfigurationRuleExpirationArgs(expired_object_delete_marker=True),
            transitions=[
                aws.s3.BucketLifecycleConfigurationRuleTransitionArgs(
                    days=retention.infrequent_access_days, storage_class="STANDARD_IA"
                )
            ]
            if retention.infrequent_access_days
            else None,
        )

    def _folder_rules(self) -> Iterator[aws.s3.BucketLifecycleConfigurationRuleArgs]:
        """An expired object is a noncurrent version from then on, for the days of the rule of the whole bucket."""
        for folder, days in self._args.retention.folder_days.items():
            yield aws.s3.BucketLifecycleConfigurationRuleArgs(
                id=folder,
                status="Enabled",
                filter=aws.s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=f"{folder}/"),
                expiration=aws.s3.BucketLifecycleConfigurationRuleExpirationArgs(days=days),
            )

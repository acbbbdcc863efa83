"""Storage that outlives a run: buckets for checkpoints and artifacts, file systems for datasets and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pulumi

from infra.aws.buckets import AccessLog, Bucket, BucketArgs, Retention
from infra.aws.cluster import Cluster
from infra.aws.context import BuildContext
from infra.aws.encryption import Encryption
from infra.aws.file_system import FileSystem, FileSystemArgs
from infra.aws.lustre import Lustre, LustreArgs
from infra.aws.network import Network
from infra.spec.names import BACKUP_FOLDER, BucketPurpose, bucket_name
from infra.spec.protection import Protection
from infra.spec.settings.stores import LustreSettings

ACCESS_LOG_DAYS = 90
"""Retention of S3 access logs in days."""


@dataclass(frozen=True, kw_only=True)
class StorageArgs:
    """Inputs of `Storage`.

    Attributes:
        name_prefix: prefix of the bucket names.
        account: AWS account, the suffix of the bucket names.
        key_arn: KMS key.
        retention: retention of the buckets.
        backup_days: days for which a backup of MLflow is kept.
        efs_throughput: throughput mode, elastic or bursting.
        efs_uid: user and group that own everything in the file system.
        lustre: the Lustre file system, or None.
        teams: names of the teams.
        vpc_id: the VPC.
        subnet_ids: one subnet per zone, by zone.
        client_security_group_id: security group of the nodes.
        efs_driver_role_arn: role, not of the stack, of the driver that mounts EFS; None: the driver's role is of the stack.
        protection: deletion protection.
    """

    name_prefix: str
    account: pulumi.Input[str]
    key_arn: pulumi.Input[str]
    retention: Retention
    backup_days: int
    efs_throughput: str
    efs_uid: int
    lustre: LustreSettings | None
    teams: Sequence[str]
    vpc_id: pulumi.Input[str]
    subnet_ids: Mapping[str, pulumi.Input[str]]
    client_security_group_id: pulumi.Input[str]
    efs_driver_role_arn: str | None
    protection: Protection


class Storage(pulumi.ComponentResource):
    """Three buckets, a file system, and a second one for reading by many nodes where the settings ask for it.

    Attributes:
        checkpoints: bucket for checkpoints, with one prefix per team namespace.
        artifacts: bucket for MLflow's artifacts and backups.
        file_system: file system for the datasets and the teams' runs.
        lustre: the Lustre file system, or None.
    """

    checkpoints: Bucket
    artifacts: Bucket
    file_system: FileSystem
    lustre: Lustre | None

    def __init__(self, name: str, args: StorageArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:Storage", name, None, opts)
        self._args = args
        logs = self._make_log_bucket()
        self.checkpoints = self._make_bucket("checkpoints", args.retention, logs)
        # MLflow reads artifacts of any age, so they stay in Standard storage.
        artifacts = replace(args.retention, infrequent_access_days=None, folder_days={BACKUP_FOLDER: args.backup_days})
        self.artifacts = self._make_bucket("artifacts", artifacts, logs)
        self.file_system = FileSystem(
            "datasets",
            FileSystemArgs(
                key_arn=args.key_arn,
                throughput=args.efs_throughput,
                uid=args.efs_uid,
                teams=args.teams,
                vpc_id=args.vpc_id,
                subnet_ids=args.subnet_ids,
                client_security_group_id=args.client_security_group_id,
                driver_role_arn=args.efs_driver_role_arn,
                protection=args.protection,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        self.lustre = None if args.lustre is None else self._make_lustre(args.lustre)
        self.register_outputs({"checkpoints": self.checkpoints.name, "artifacts": self.artifacts.name})

    def _physical_name(self, purpose: BucketPurpose) -> pulumi.Output[str]:
        prefix = self._args.name_prefix
        return pulumi.Output.from_input(self._args.account).apply(
            lambda account: bucket_name(prefix, purpose, account=account)
        )

    def _make_bucket(self, purpose: BucketPurpose, retention: Retention, logs: Bucket) -> Bucket:
        return Bucket(
            purpose,
            BucketArgs(
                bucket=self._physical_name(purpose),
                key_arn=self._args.key_arn,
                retention=retention,
                protection=self._args.protection,
                access_log=AccessLog(bucket=logs.name, prefix=f"{purpose}/"),
            ),
            pulumi.ResourceOptions(parent=self, depends_on=[logs]),
        )

    def _make_lustre(self, settings: LustreSettings) -> Lustre:
        args = self._args
        return Lustre(
            "lustre",
            LustreArgs(
                settings=settings,
                key_arn=args.key_arn,
                vpc_id=args.vpc_id,
                subnet_id=args.subnet_ids[settings.availability_zone],
                client_security_group_id=args.client_security_group_id,
                protection=args.protection,
            ),
            pulumi.ResourceOptions(parent=self),
        )

    def _make_log_bucket(self) -> Bucket:
        return Bucket(
            "logs",
            BucketArgs(
                bucket=self._physical_name("logs"),
                key_arn=None,
                retention=replace(self._args.retention, infrequent_access_days=None, expire_days=ACCESS_LOG_DAYS),
                protection=self._args.protection,
                log_source_account=self._args.account,
            ),
            pulumi.ResourceOptions(parent=self),
        )


def make_storage(context: BuildContext, encryption: Encryption, network: Network, cluster: Cluster) -> Storage:
    """Make the buckets and the file systems."""
    storage = context.settings.storage
    args = StorageArgs(
        name_prefix=context.name_prefix,
        account=context.account,
        key_arn=encryption.keys["storage"],
        retention=Retention(
            noncurrent_days=storage.noncurrent_days,
            abort_upload_days=storage.abort_upload_days,
            infrequent_access_days=storage.infrequent_access_days,
        ),
        backup_days=context.settings.backup_days,
        efs_throughput=storage.efs_throughput,
        efs_uid=storage.efs_uid,
        lustre=storage.lustre,
        teams=[team.name for team in context.settings.teams],
        vpc_id=network.vpc_id,
        subnet_ids=network.private_subnet_ids,
        client_security_group_id=cluster.security_group_id,
        efs_driver_role_arn=context.settings.cluster.foreign_drivers.get("aws-efs-csi-driver"),
        protection=context.protection,
    )
    return Storage("storage", args, context.opts)

"""The file system of the datasets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.iam import Statement, policy
from infra.protection import Protection

_NFS = 2049


@dataclass(frozen=True, kw_only=True)
class FileSystemArgs:
    """The file system of the datasets.

    Attributes:
        key_arn: KMS key.
        throughput: elastic or bursting.
        uid: user and group of everything below the access point.
        vpc_id: the VPC.
        subnet_ids: one subnet per zone, by zone; each gets a mount target.
        client_security_group_id: security group of the nodes.
        protection: what guards it.
    """

    key_arn: pulumi.Input[str]
    throughput: str
    uid: int
    vpc_id: pulumi.Input[str]
    subnet_ids: Mapping[str, pulumi.Input[str]]
    client_security_group_id: pulumi.Input[str]
    protection: Protection


class FileSystem(pulumi.ComponentResource):
    """EFS with TLS and IAM enforced, a mount target per zone, and one access point with a fixed user.

    Attributes:
        id: the file system.
        arn: its ARN.
        access_point_id: the access point.
        access_point_arn: its ARN.
    """

    id: pulumi.Output[str]
    arn: pulumi.Output[str]
    access_point_id: pulumi.Output[str]
    access_point_arn: pulumi.Output[str]

    def __init__(self, name: str, args: FileSystemArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:FileSystem", name, None, opts)
        self._args = args
        self._below = pulumi.ResourceOptions(parent=self)
        self._guarded = pulumi.ResourceOptions(
            parent=self, protect=args.protection.protect, retain_on_delete=args.protection.retain_on_delete
        )
        file_system = self._make_file_system(name)
        self.id, self.arn = file_system.id, file_system.arn
        self._make_mount_targets()
        point = self._make_access_point(name)
        self.access_point_id, self.access_point_arn = point.id, point.arn
        self.register_outputs({"id": self.id, "accessPointId": self.access_point_id})

    def _make_file_system(self, name: str) -> aws.efs.FileSystem:
        args = self._args
        file_system = aws.efs.FileSystem(
            name,
            encrypted=True,
            kms_key_id=args.key_arn,
            performance_mode="generalPurpose",
            throughput_mode=args.throughput,
            lifecycle_policies=[
                aws.efs.FileSystemLifecyclePolicyArgs(transition_to_ia="AFTER_30_DAYS"),
                aws.efs.FileSystemLifecyclePolicyArgs(transition_to_primary_storage_class="AFTER_1_ACCESS"),
            ],
            tags={"Name": name},
            opts=self._guarded,
        )
        aws.efs.BackupPolicy(
            name,
            file_system_id=file_system.id,
            backup_policy=aws.efs.BackupPolicyBackupPolicyArgs(
                status="ENABLED" if args.protection.backup_days else "DISABLED"
            ),
            opts=self._guarded,
        )
        aws.efs.FileSystemPolicy(
            name,
            file_system_id=file_system.id,
            policy=policy(_refusals(file_system.arn)),
            opts=self._guarded,
        )
        return file_system

    def _make_mount_targets(self) -> None:
        args = self._args
        group = aws.ec2.SecurityGroup(
            "efs", vpc_id=args.vpc_id, description="Mount targets of the datasets", opts=self._below
        )
        aws.vpc.SecurityGroupIngressRule(
            "efs",
            security_group_id=group.id,
            description="NFS from the nodes",
            referenced_security_group_id=args.client_security_group_id,
            ip_protocol="tcp",
            from_port=_NFS,
            to_port=_NFS,
            opts=self._below,
        )
        for zone, subnet in args.subnet_ids.items():
            aws.efs.MountTarget(
                zone, file_system_id=self.id, subnet_id=subnet, security_groups=[group.id], opts=self._below
            )

    def _make_access_point(self, name: str) -> aws.efs.AccessPoint:
        uid = self._args.uid
        return aws.efs.AccessPoint(
            name,
            file_system_id=self.id,
            posix_user=aws.efs.AccessPointPosixUserArgs(uid=uid, gid=uid),
            root_directory=aws.efs.AccessPointRootDirectoryArgs(
                path="/datasets",
                creation_info=aws.efs.AccessPointRootDirectoryCreationInfoArgs(
                    owner_uid=uid, owner_gid=uid, permissions="0770"
                ),
            ),
            opts=self._guarded,
        )


def _refusals(file_system_arn: pulumi.Input[str]) -> list[Statement]:
    """Nobody without TLS, nobody as root, and nobody without IAM.

    The last follows from there being a policy at all: it replaces EFS's default, which lets every client in that
    reaches a mount target (EFS user guide, "Using IAM to control access to file systems").
    """
    return [
        Statement(
            sid="TlsOnly",
            effect="Deny",
            principal="*",
            actions=("elasticfilesystem:*",),
            resources=(file_system_arn,),
            condition={"Bool": {"aws:SecureTransport": "false"}},
        ),
        Statement(
            sid="NoRoot",
            effect="Deny",
            principal="*",
            actions=("elasticfilesystem:ClientRootAccess",),
            resources=(file_system_arn,),
        ),
    ]

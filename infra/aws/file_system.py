"""The EFS file system for datasets and the teams' runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.aws.context import protected_opts
from infra.aws.iam import Statement, deny_without_tls, policy_document
from infra.aws.security_groups import make_service_group
from infra.spec.protection import Protection

_NFS = 2049


@dataclass(frozen=True, kw_only=True)
class FileSystemArgs:
    """Inputs of `FileSystem`.

    Attributes:
        key_arn: KMS key.
        throughput: throughput mode, elastic or bursting.
        uid: POSIX user and group of every access point.
        teams: names of the teams.
        vpc_id: the VPC.
        subnet_ids: one subnet per zone, by zone; each gets a mount target.
        client_security_group_id: security group of the nodes.
        driver_role_arn: role, not of the stack, of the driver that mounts it; None: the driver's role is of the stack.
        protection: deletion protection.
    """

    key_arn: pulumi.Input[str]
    throughput: str
    uid: int
    teams: Sequence[str]
    vpc_id: pulumi.Input[str]
    subnet_ids: Mapping[str, pulumi.Input[str]]
    client_security_group_id: pulumi.Input[str]
    driver_role_arn: str | None
    protection: Protection


class FileSystem(pulumi.ComponentResource):
    """EFS with TLS and IAM required, a mount target per zone, and an access point per team.

    All access points enforce the same POSIX user. Their root directories isolate the teams: a client cannot leave the
    root directory of the access point that it mounts.

    Attributes:
        id: ID of the file system.
        arn: ARN of the file system.
        datasets: access point for `/datasets`.
        teams: access point for `/teams/<team>`, by team.
    """

    id: pulumi.Output[str]
    arn: pulumi.Output[str]
    datasets: aws.efs.AccessPoint
    teams: Mapping[str, aws.efs.AccessPoint]

    def __init__(self, name: str, args: FileSystemArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:FileSystem", name, None, opts)
        self._args = args
        self._child_opts = pulumi.ResourceOptions(parent=self)
        self._protected_opts = protected_opts(self, args.protection)
        file_system = self._make_file_system(name)
        self.id, self.arn = file_system.id, file_system.arn
        self._make_mount_targets()
        self.datasets = self._make_access_point(name, "/datasets", permissions="0770", opts=self._protected_opts)
        # Unprotected, so that a team can be removed; its directory outlives the access point.
        self.teams = {
            team: self._make_access_point(f"team-{team}", f"/teams/{team}", permissions="0750", opts=self._child_opts)
            for team in args.teams
        }
        self._make_policy(name)
        self.register_outputs({"id": self.id, "accessPointId": self.datasets.id})

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
            opts=self._protected_opts,
        )
        aws.efs.BackupPolicy(
            name,
            file_system_id=file_system.id,
            backup_policy=aws.efs.BackupPolicyBackupPolicyArgs(
                status="ENABLED" if args.protection.backup_days else "DISABLED"
            ),
            opts=self._protected_opts,
        )
        return file_system

    def _make_policy(self, name: str) -> None:
        statements = [*_deny_statements(self.arn), *self._allow_driver()]
        aws.efs.FileSystemPolicy(
            name, file_system_id=self.id, policy=policy_document(statements), opts=self._protected_opts
        )

    def _allow_driver(self) -> list[Statement]:
        """Let the driver of an existing cluster mount through the access points, as the stack's own role for it may."""
        role = self._args.driver_role_arn
        if role is None:
            return []
        points = [self.datasets.arn, *(point.arn for point in self.teams.values())]
        return [
            Statement(
                sid="MountByAccessPoint",
                actions=("elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"),
                resources=(self.arn,),
                principal={"AWS": role},
                condition={"StringEquals": {"elasticfilesystem:AccessPointArn": points}},
            )
        ]

    def _make_mount_targets(self) -> None:
        args = self._args
        group = make_service_group(
            "efs",
            description="Mount targets of the datasets",
            vpc_id=args.vpc_id,
            port=_NFS,
            clients="NFS from the nodes",
            client_group_id=args.client_security_group_id,
            opts=self._child_opts,
        )
        for zone, subnet in args.subnet_ids.items():
            aws.efs.MountTarget(
                zone, file_system_id=self.id, subnet_id=subnet, security_groups=[group.id], opts=self._child_opts
            )

    def _make_access_point(
        self, name: str, path: str, *, permissions: str, opts: pulumi.ResourceOptions
    ) -> aws.efs.AccessPoint:
        """An access point; EFS creates its directory at the first mount."""
        uid = self._args.uid
        return aws.efs.AccessPoint(
            name,
            file_system_id=self.id,
            posix_user=aws.efs.AccessPointPosixUserArgs(uid=uid, gid=uid),
            root_directory=aws.efs.AccessPointRootDirectoryArgs(
                path=path,
                creation_info=aws.efs.AccessPointRootDirectoryCreationInfoArgs(
                    owner_uid=uid, owner_gid=uid, permissions=permissions
                ),
            ),
            opts=opts,
        )


def _deny_statements(file_system_arn: pulumi.Input[str]) -> list[Statement]:
    """Deny access without TLS and root access.

    Attaching any policy also denies access without IAM: it replaces EFS's default policy, which allows every client
    that can reach a mount target (EFS user guide, "Using IAM to control access to file systems").
    """
    return [
        deny_without_tls("elasticfilesystem:*", (file_system_arn,)),
        Statement(
            sid="NoRoot",
            effect="Deny",
            principal="*",
            actions=("elasticfilesystem:ClientRootAccess",),
            resources=(file_system_arn,),
        ),
    ]

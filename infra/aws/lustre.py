"""FSx for Lustre: a parallel file system that shows a folder of a bucket, for datasets that many nodes read at once."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.spec.protection import Protection
from infra.spec.settings.stores import LustreSettings

PORTS = ((988, 988), (1018, 1023))
"""TCP ports of the file servers and of their clients, which they connect to as well (FSx for Lustre user guide, "File system
access control with Amazon VPC")."""

_VERSION = "2.15"
"""Lustre version, which the API recommends for every new file system; the default would be 2.10 or 2.12. Amazon Linux 2023 has a
client of 2.15 in its kernel (amazon-linux-2023 issue 723)."""

_NOBODY = "65534:65534"
"""User and group that root is mapped to. What is imported without POSIX metadata belongs to root and can be read by everybody, so
no client can change it."""

_EVENTS = ("NEW", "CHANGED", "DELETED")
"""Changes in the bucket that the file system follows: all."""


@dataclass(frozen=True, kw_only=True)
class LustreArgs:
    """Inputs of `Lustre`.

    Attributes:
        settings: size, tier and source.
        key_arn: KMS key of the persistent tiers; the scratch tier supports none (Amazon FSx API, KmsKeyId).
        vpc_id: the VPC.
        subnet_id: subnet of the file servers.
        client_security_group_id: security group of the nodes, which gets rules for the file servers.
        protection: deletion protection.
    """

    settings: LustreSettings
    key_arn: pulumi.Input[str]
    vpc_id: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    client_security_group_id: pulumi.Input[str]
    protection: Protection


class Lustre(pulumi.ComponentResource):
    """An FSx for Lustre file system and its link to the bucket.

    It has no backups, which FSx refuses for linked file systems, and it is not retained when it is removed: the bucket has
    the data. It exports nothing, because no job can write to it.

    Attributes:
        id: ID of the file system.
        dns_name: host name of the servers.
        mount_name: name of the file system, which the mount command needs.
    """

    id: pulumi.Output[str]
    dns_name: pulumi.Output[str]
    mount_name: pulumi.Output[str]

    def __init__(self, name: str, args: LustreArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:Lustre", name, None, opts)
        self._args = args
        self._child_opts = pulumi.ResourceOptions(parent=self)
        group = aws.ec2.SecurityGroup(
            name, vpc_id=args.vpc_id, description="File servers of FSx for Lustre", opts=self._child_opts
        )
        file_system = self._make_file_system(name, group, self._make_rules(group.id))
        self.id, self.dns_name, self.mount_name = file_system.id, file_system.dns_name, file_system.mount_name
        self._make_link(name)
        self.register_outputs({"id": self.id})

    def _make_rules(self, servers: pulumi.Output[str]) -> list[pulumi.Resource]:
        """Servers and nodes connect to each other, and servers among themselves; nodes may send anything already."""
        nodes = self._args.client_security_group_id
        ingress, egress = aws.vpc.SecurityGroupIngressRule, aws.vpc.SecurityGroupEgressRule
        return [
            direction(
                f"lustre-{label}-{first}",
                security_group_id=group,
                referenced_security_group_id=peer,
                description=f"Lustre {label.replace('-', ' ')}",
                ip_protocol="tcp",
                from_port=first,
                to_port=last,
                opts=self._child_opts,
            )
            for label, direction, group, peer in (
                ("from-servers", ingress, servers, servers),
                ("from-nodes", ingress, servers, nodes),
                ("to-servers", egress, servers, servers),
                ("to-nodes", egress, servers, nodes),
                ("servers-to-nodes", ingress, nodes, servers),
            )
            for first, last in PORTS
        ]

    def _make_file_system(
        self, name: str, group: aws.ec2.SecurityGroup, rules: list[pulumi.Resource]
    ) -> aws.fsx.LustreFileSystem:
        settings = self._args.settings
        is_persistent = settings.throughput is not None
        return aws.fsx.LustreFileSystem(
            name,
            deployment_type="PERSISTENT_2" if is_persistent else "SCRATCH_2",
            storage_type="SSD",
            storage_capacity=settings.size_gib,
            per_unit_storage_throughput=settings.throughput,
            file_system_type_version=_VERSION,
            kms_key_id=self._args.key_arn if is_persistent else None,
            subnet_ids=self._args.subnet_id,
            security_group_ids=[group.id],
            root_squash_configuration=aws.fsx.LustreFileSystemRootSquashConfigurationArgs(root_squash=_NOBODY),
            automatic_backup_retention_days=0 if is_persistent else None,
            skip_final_backup=True,
            tags={"Name": name},
            # FSx checks the ports when it creates the file system.
            opts=pulumi.ResourceOptions(parent=self, protect=self._args.protection.protect, depends_on=rules),
        )

    def _make_link(self, name: str) -> None:
        """Show the bucket's folder at the root. A new source replaces the link, and with it what the old one imported."""
        aws.fsx.DataRepositoryAssociation(
            name,
            file_system_id=self.id,
            file_system_path="/",
            data_repository_path=self._args.settings.source,
            batch_import_meta_data_on_create=True,
            delete_data_in_filesystem=True,
            s3=aws.fsx.DataRepositoryAssociationS3Args(
                auto_import_policy=aws.fsx.DataRepositoryAssociationS3AutoImportPolicyArgs(events=list(_EVENTS))
            ),
            # FSx refuses a second link of the same path.
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )

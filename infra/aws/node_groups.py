"""EKS managed node groups, each with its own launch template, made from the launch plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.aws.cluster import Cluster
from infra.aws.context import BuildContext
from infra.aws.encryption import Encryption
from infra.aws.iam import Role
from infra.aws.network import Network
from infra.aws.user_data import node_config, template_tags
from infra.spec import names
from infra.spec.node_group import NodeGroup
from infra.spec.sharing import mig_script

_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
"""EKS's spelling of Kubernetes's taint effects."""

_TAGGED = ("instance", "volume", "network-interface")
_ROOT_DEVICE = "/dev/xvda"


@dataclass(frozen=True, kw_only=True)
class NodesArgs:
    """What all node groups of a cluster have in common.

    Attributes:
        cluster_name: the cluster.
        cluster_security_group_id: EKS's own security group.
        efa_security_group_id: group of the EFA interfaces.
        kubernetes: minor of the nodes.
        role_arn: role of the nodes.
        volume_key_arn: KMS key of the root volumes.
        tags: tags of instances, volumes and interfaces.
    """

    cluster_name: pulumi.Input[str]
    cluster_security_group_id: pulumi.Input[str]
    efa_security_group_id: pulumi.Input[str]
    kubernetes: str
    role_arn: pulumi.Input[str]
    volume_key_arn: pulumi.Input[str]
    tags: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class NodeGroupArgs:
    """One node group.

    Attributes:
        group: the group, resolved.
        subnet_ids: subnets of its zones.
        release_version: AMI release; None while the release has not resolved it, and EKS takes its newest.
    """

    group: NodeGroup
    subnet_ids: Sequence[pulumi.Input[str]]
    release_version: str | None


class ManagedNodeGroup(pulumi.ComponentResource):
    """A launch template, a node group, and the autoscaler's tags; where asked for, a placement group of its own.

    Attributes:
        name: physical name of the node group.
        autoscaling_group: name of the autoscaling group behind it.
    """

    name: pulumi.Output[str]
    autoscaling_group: pulumi.Output[str]

    def __init__(self, args: NodeGroupArgs, nodes: NodesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:NodeGroup", args.group.name, None, opts)
        self._args = args
        self._group = args.group
        self._nodes = nodes
        self._below = pulumi.ResourceOptions(parent=self)
        group = self._make_group(self._make_launch_template())
        self.name = group.node_group_name
        self.autoscaling_group = group.resources[0].autoscaling_groups[0].name
        self._make_template_tags()
        self.register_outputs({"name": self.name, "autoscalingGroup": self.autoscaling_group})

    def _make_launch_template(self) -> aws.ec2.LaunchTemplate:
        plan, name = self._group.plan, self._group.name
        has_interfaces = bool(plan.network_interfaces)
        tags = {**self._nodes.tags, "Name": name}
        return aws.ec2.LaunchTemplate(
            name,
            description=f"Nodes of group {name}",
            update_default_version=True,
            instance_type=plan.instance.name if plan.instance_type_in_template else None,
            metadata_options=aws.ec2.LaunchTemplateMetadataOptionsArgs(
                http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=1
            ),
            block_device_mappings=[self._root_volume()],
            network_interfaces=self._network_interfaces() if has_interfaces else None,
            vpc_security_group_ids=None if has_interfaces else [self._nodes.cluster_security_group_id],
            placement=self._placement(),
            capacity_reservation_specification=self._reservation(),
            instance_market_options=aws.ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type=plan.market_type)
            if plan.market_type
            else None,
            tag_specifications=[
                aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags) for kind in _TAGGED
            ],
            user_data=node_config(
                max_pods=self._group.max_pods, has_raid0=plan.nvme_raid0, script=self._start_script()
            ),
            opts=self._below,
        )

    def _start_script(self) -> str | None:
        profile = self._group.sharing.mig_profile
        return mig_script(profile, slices=self._group.devices_per_gpu) if profile else None

    def _root_volume(self) -> aws.ec2.LaunchTemplateBlockDeviceMappingArgs:
        return aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
            device_name=_ROOT_DEVICE,
            ebs=aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                volume_type="gp3",
                volume_size=self._group.disk_gib,
                encrypted="true",
                kms_key_id=self._nodes.volume_key_arn,
                delete_on_termination="true",
            ),
        )

    def _network_interfaces(self) -> list[aws.ec2.LaunchTemplateNetworkInterfaceArgs]:
        """The plan's interfaces, without subnet and public address: the group sets the one, EC2 refuses the other."""
        groups = [self._nodes.cluster_security_group_id, self._nodes.efa_security_group_id]
        return [
            aws.ec2.LaunchTemplateNetworkInterfaceArgs(
                network_card_index=interface.network_card_index,
                device_index=interface.device_index,
                interface_type=interface.interface_type,
                security_groups=groups,
                delete_on_termination="true",
            )
            for interface in self._group.plan.network_interfaces
        ]

    def _placement(self) -> aws.ec2.LaunchTemplatePlacementArgs | None:
        wanted = self._group.plan.placement_group
        if wanted is None:
            return None
        if wanted != "own":
            return aws.ec2.LaunchTemplatePlacementArgs(group_name=wanted)
        group = aws.ec2.PlacementGroup(self._group.name, strategy="cluster", opts=self._below)
        return aws.ec2.LaunchTemplatePlacementArgs(group_name=group.name)

    def _reservation(self) -> aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs | None:
        target = self._group.plan.reservation_id
        if target is None:
            return None
        return aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs(
            capacity_reservation_target=aws.ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
                capacity_reservation_id=target
            )
        )

    def _make_group(self, template: aws.ec2.LaunchTemplate) -> aws.eks.NodeGroup:
        group, plan = self._group, self._group.plan
        return aws.eks.NodeGroup(
            group.name,
            cluster_name=self._nodes.cluster_name,
            node_role_arn=self._nodes.role_arn,
            subnet_ids=list(self._args.subnet_ids),
            capacity_type=plan.capacity_type,
            instance_types=None if plan.instance_type_in_template else [plan.instance.name],
            ami_type=group.ami_type,
            version=self._nodes.kubernetes,
            release_version=self._args.release_version,
            scaling_config=aws.eks.NodeGroupScalingConfigArgs(
                min_size=group.min_size, desired_size=group.desired_size, max_size=group.max_size
            ),
            update_config=aws.eks.NodeGroupUpdateConfigArgs(max_unavailable_percentage=group.update_percent),
            node_repair_config=aws.eks.NodeGroupNodeRepairConfigArgs(enabled=group.is_repaired),
            labels=group.node_labels,
            taints=[
                aws.eks.NodeGroupTaintArgs(key=taint.key, value=taint.value, effect=_EFFECTS[taint.effect])
                for taint in (*group.taints, *group.start_up_taints)
            ],
            launch_template=aws.eks.NodeGroupLaunchTemplateArgs(
                id=template.id, version=template.latest_version.apply(str)
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                # The autoscaler moves it.
                ignore_changes=["scalingConfig.desiredSize"],
                # A reservation holds each instance once: the new group cannot start beside the old one.
                delete_before_replace=plan.reservation_id is not None,
            ),
        )

    def _make_template_tags(self) -> None:
        for key, value in template_tags(self._group).items():
            aws.autoscaling.Tag(
                f"{self._group.name}-{key.partition('/node-template/')[2]}",
                autoscaling_group_name=self.autoscaling_group,
                tag=aws.autoscaling.TagTagArgs(key=key, value=value, propagate_at_launch=False),
                opts=self._below,
            )


def nodes_args(
    context: BuildContext, encryption: Encryption, network: Network, cluster: Cluster, role: Role
) -> NodesArgs:
    """What all node groups have in common."""
    return NodesArgs(
        cluster_name=cluster.name,
        cluster_security_group_id=cluster.security_group_id,
        efa_security_group_id=network.efa_security_group_id,
        kubernetes=context.kubernetes,
        role_arn=role.arn,
        volume_key_arn=encryption.keys["volumes"],
        tags=names.node_tags(context.settings),
    )


def node_group_args(context: BuildContext, network: Network, group: NodeGroup) -> NodeGroupArgs:
    """One node group in the subnets of its zones, with the release's AMI."""
    return NodeGroupArgs(
        group=group,
        subnet_ids=[network.private_subnet_ids[zone] for zone in group.plan.availability_zones],
        release_version=context.ami_release(group.ami_type),
    )

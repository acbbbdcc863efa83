"""EKS managed node groups, one per zone of a group, and the launch template that they share, made from the launch plan."""

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
from infra.aws.user_data import TEMPLATE_TAG, template_tags, user_data
from infra.spec import names
from infra.spec.launch_plan import LaunchPlan
from infra.spec.node_group import NodeGroup, ZoneGroup

_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
"""EKS's spelling of Kubernetes's taint effects."""

_TAGGED = ("instance", "volume", "network-interface")
_ROOT_DEVICE = "/dev/xvda"


@dataclass(frozen=True, kw_only=True)
class NodesArgs:
    """What all node groups of a cluster have in common.

    Attributes:
        cluster_name: the cluster.
        security_group_ids: security groups of every node, the first one that of the cluster.
        efa_security_group_id: group of the EFA interfaces.
        kubernetes: minor of the nodes.
        role_arn: role of the nodes.
        volume_key_arn: KMS key of the root volumes.
        tags: tags of instances, volumes and interfaces.
        group_tags: tags of the Auto Scaling groups, besides those of EKS and the node template.
    """

    cluster_name: pulumi.Input[str]
    security_group_ids: Sequence[pulumi.Input[str]]
    efa_security_group_id: pulumi.Input[str]
    kubernetes: str
    role_arn: pulumi.Input[str]
    volume_key_arn: pulumi.Input[str]
    tags: Mapping[str, str]
    group_tags: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class NodeGroupArgs:
    """One node group.

    Attributes:
        group: the group, resolved.
        subnet_ids: subnet by zone.
        release_version: AMI release; None while the release has not resolved it, and EKS takes its newest.
    """

    group: NodeGroup
    subnet_ids: Mapping[str, pulumi.Input[str]]
    release_version: str | None


class ManagedNodeGroup(pulumi.ComponentResource):
    """A launch template, a node group per zone, and the autoscaler's tags; where asked for, a placement group of its own."""

    def __init__(self, args: NodeGroupArgs, nodes: NodesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:NodeGroup", args.group.name, None, opts)
        self._args = args
        self._group = args.group
        self._nodes = nodes
        self._below = pulumi.ResourceOptions(parent=self)
        template = self._make_launch_template()
        for part in self._group.zone_groups:
            self._make_template_tags(part, self._make_group(part, template))
        self.register_outputs({})

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
            vpc_security_group_ids=None if has_interfaces else list(self._nodes.security_group_ids),
            placement=self._placement(),
            capacity_reservation_specification=self._reservation(),
            instance_market_options=aws.ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type=plan.market_type)
            if plan.market_type
            else None,
            tag_specifications=[
                aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags) for kind in _TAGGED
            ],
            user_data=user_data(self._group),
            opts=self._below,
        )

    def _root_volume(self) -> aws.ec2.LaunchTemplateBlockDeviceMappingArgs:
        return aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
            device_name=_ROOT_DEVICE,
            ebs=aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                volume_type="gp3",
                volume_size=self._group.disk_gib,
                throughput=self._group.disk_throughput_mib,
                encrypted="true",
                kms_key_id=self._nodes.volume_key_arn,
                delete_on_termination="true",
            ),
        )

    def _network_interfaces(self) -> list[aws.ec2.LaunchTemplateNetworkInterfaceArgs]:
        """The plan's interfaces, without subnet and public address: the group sets the one, EC2 refuses the other."""
        groups = [*self._nodes.security_group_ids, self._nodes.efa_security_group_id]
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

    def _make_group(self, part: ZoneGroup, template: aws.ec2.LaunchTemplate) -> aws.eks.NodeGroup:
        group, plan = self._group, self._group.plan
        return aws.eks.NodeGroup(
            part.name,
            cluster_name=self._nodes.cluster_name,
            node_role_arn=self._nodes.role_arn,
            subnet_ids=[self._args.subnet_ids[part.zone]],
            capacity_type=plan.capacity_type,
            instance_types=None
            if plan.instance_type_in_template
            else [one.name for one in (plan.instance, *plan.alternatives)],
            ami_type=group.ami_type,
            version=self._nodes.kubernetes,
            release_version=self._args.release_version,
            scaling_config=aws.eks.NodeGroupScalingConfigArgs(
                min_size=part.min_size, desired_size=part.desired_size, max_size=part.max_size
            ),
            update_config=aws.eks.NodeGroupUpdateConfigArgs(
                max_unavailable_percentage=group.update_percent, update_strategy=plan.update_strategy
            ),
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
                ignore_changes=_kept(plan),
                # A reservation holds each instance once: the new group cannot start beside the old one.
                delete_before_replace=plan.reservation_id is not None,
            ),
        )

    def _make_template_tags(self, part: ZoneGroup, made: aws.eks.NodeGroup) -> None:
        for key, value in {**template_tags(self._group), **self._nodes.group_tags}.items():
            aws.autoscaling.Tag(
                f"{part.name}-{key.removeprefix(f'{TEMPLATE_TAG}/')}",
                autoscaling_group_name=made.resources[0].autoscaling_groups[0].name,
                tag=aws.autoscaling.TagTagArgs(key=key, value=value, propagate_at_launch=False),
                opts=self._below,
            )


def _kept(plan: LaunchPlan) -> list[str]:
    """Inputs that an update leaves as they are.

    The autoscaler changes the size. What the nodes of a Capacity Block are made from stays, because EKS updates such a group
    only while it is empty (EKS user guide, "Create a managed node group with Capacity Blocks for ML"). A new block is a new
    group.
    """
    is_block = plan.market_type == "capacity-block"
    return ["scalingConfig.desiredSize", *(("launchTemplate", "releaseVersion", "version") if is_block else ())]


def nodes_args(
    context: BuildContext, encryption: Encryption, network: Network, cluster: Cluster, role: Role
) -> NodesArgs:
    """What all node groups have in common."""
    return NodesArgs(
        cluster_name=cluster.name,
        security_group_ids=cluster.node_security_group_ids,
        efa_security_group_id=network.efa_security_group_id,
        kubernetes=context.kubernetes,
        role_arn=role.arn,
        volume_key_arn=encryption.keys["volumes"],
        tags=names.node_tags(context.settings),
        group_tags=_group_tags(context),
    )


def _group_tags(context: BuildContext) -> dict[str, str]:
    """What tells the stack's groups from others of its cluster: nothing, in a cluster of its own."""
    shared = names.discovery_tags(context.settings)
    return {key: value for key, value in shared.items() if key == names.STACK_TAG}


def node_group_args(context: BuildContext, network: Network, group: NodeGroup) -> NodeGroupArgs:
    """One node group in the subnets of its zones, with the release's AMI."""
    return NodeGroupArgs(
        group=group,
        subnet_ids=network.private_subnet_ids,
        release_version=context.ami_release(group.ami_type),
    )

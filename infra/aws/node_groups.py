"""Managed node groups, each with a launch template of its own, computed from the launch plan."""

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
from infra.spec.capacity import LaunchPlan, launch_plan
from infra.spec.outputs import GROUP_LABEL, Taint, gpu_group_output
from infra.spec.release import AmiType
from infra.spec.settings.nodes import GpuGroup, Sharing
from infra.spec.sharing import devices_per_gpu, mig_script, sharing_labels

_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
"""EKS's spelling of Kubernetes's taint effects."""

_TAGGED = ("instance", "volume", "network-interface")
_ROOT_DEVICE = "/dev/xvda"

_SYSTEM_UPDATE_PERCENT = 33


@dataclass(frozen=True, kw_only=True)
class NodesArgs:
    """What all node groups of a cluster share.

    Attributes:
        cluster_name: the cluster.
        cluster_security_group_id: EKS's own security group.
        efa_security_group_id: group of the EFA interfaces.
        kubernetes: minor of the nodes.
        role_arn: role of the nodes.
        volume_key_arn: KMS key of the root volumes.
        max_pods: largest number of pods on a node.
        tags: tags of instances, volumes and interfaces.
    """

    cluster_name: pulumi.Input[str]
    cluster_security_group_id: pulumi.Input[str]
    efa_security_group_id: pulumi.Input[str]
    kubernetes: str
    role_arn: pulumi.Input[str]
    volume_key_arn: pulumi.Input[str]
    max_pods: int
    tags: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class NodeGroupArgs:
    """One node group.

    Attributes:
        name: name of the group.
        plan: how it gets its machines.
        subnet_ids: subnets of the plan's zones.
        ami_type: EKS's AMI type.
        release_version: AMI release; None while the release has not resolved it, and EKS takes its newest.
        sizes: smallest, desired and largest number of nodes.
        disk_gib: root volume in GiB.
        labels: node labels.
        taints: node taints that stay; the autoscaler's template has these.
        start_up_taints: node taints that something takes away when the node is ready.
        update_percent: share of the nodes an update replaces at a time.
        is_repaired: EKS replaces or reboots broken nodes.
        sharing: how one GPU serves several pods.
    """

    name: str
    plan: LaunchPlan
    subnet_ids: Sequence[pulumi.Input[str]]
    ami_type: AmiType
    release_version: str | None
    sizes: tuple[int, int, int]
    disk_gib: int
    labels: Mapping[str, str]
    taints: Sequence[Taint]
    start_up_taints: Sequence[Taint]
    update_percent: int
    is_repaired: bool
    sharing: Sharing = Sharing()  # noqa: RUF009  # frozen


class NodeGroup(pulumi.ComponentResource):
    """A launch template, a node group, and the autoscaler's tags; where asked for, a placement group of its own.

    Attributes:
        name: physical name of the node group.
        autoscaling_group: name of the autoscaling group behind it.
    """

    name: pulumi.Output[str]
    autoscaling_group: pulumi.Output[str]

    def __init__(self, args: NodeGroupArgs, nodes: NodesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:NodeGroup", args.name, None, opts)
        self._args = args
        self._nodes = nodes
        self._below = pulumi.ResourceOptions(parent=self)
        group = self._make_group(self._make_launch_template())
        self.name = group.node_group_name
        self.autoscaling_group = group.resources[0].autoscaling_groups[0].name
        self._make_template_tags()
        self.register_outputs({"name": self.name, "autoscalingGroup": self.autoscaling_group})

    def _make_launch_template(self) -> aws.ec2.LaunchTemplate:
        plan, name = self._args.plan, self._args.name
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
                max_pods=self._nodes.max_pods, has_raid0=plan.nvme_raid0, script=self._start_script()
            ),
            opts=self._below,
        )

    def _devices_per_gpu(self) -> int:
        gpu = self._args.plan.instance.gpu
        return devices_per_gpu(self._args.sharing, gpu) if gpu else 1

    def _start_script(self) -> str | None:
        profile = self._args.sharing.mig_profile
        return mig_script(profile, slices=self._devices_per_gpu()) if profile else None

    def _root_volume(self) -> aws.ec2.LaunchTemplateBlockDeviceMappingArgs:
        return aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
            device_name=_ROOT_DEVICE,
            ebs=aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                volume_type="gp3",
                volume_size=self._args.disk_gib,
                encrypted="true",
                kms_key_id=self._nodes.volume_key_arn,
                delete_on_termination="true",
            ),
        )

    def _network_interfaces(self) -> list[aws.ec2.LaunchTemplateNetworkInterfaceArgs]:
        """The plan's interfaces. Subnet and public address stay out: the group sets the one, EC2 refuses the other."""
        groups = [self._nodes.cluster_security_group_id, self._nodes.efa_security_group_id]
        return [
            aws.ec2.LaunchTemplateNetworkInterfaceArgs(
                network_card_index=interface.network_card_index,
                device_index=interface.device_index,
                interface_type=interface.interface_type,
                security_groups=groups,
                delete_on_termination="true",
            )
            for interface in self._args.plan.network_interfaces
        ]

    def _placement(self) -> aws.ec2.LaunchTemplatePlacementArgs | None:
        wanted = self._args.plan.placement_group
        if wanted is None:
            return None
        if wanted != "own":
            return aws.ec2.LaunchTemplatePlacementArgs(group_name=wanted)
        group = aws.ec2.PlacementGroup(self._args.name, strategy="cluster", opts=self._below)
        return aws.ec2.LaunchTemplatePlacementArgs(group_name=group.name)

    def _reservation(self) -> aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs | None:
        target = self._args.plan.reservation_id
        if target is None:
            return None
        return aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs(
            capacity_reservation_target=aws.ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
                capacity_reservation_id=target
            )
        )

    def _make_group(self, template: aws.ec2.LaunchTemplate) -> aws.eks.NodeGroup:
        args, plan = self._args, self._args.plan
        smallest, desired, largest = args.sizes
        return aws.eks.NodeGroup(
            args.name,
            cluster_name=self._nodes.cluster_name,
            node_role_arn=self._nodes.role_arn,
            subnet_ids=list(args.subnet_ids),
            capacity_type=plan.capacity_type,
            instance_types=None if plan.instance_type_in_template else [plan.instance.name],
            ami_type=args.ami_type,
            version=self._nodes.kubernetes,
            release_version=args.release_version,
            scaling_config=aws.eks.NodeGroupScalingConfigArgs(
                min_size=smallest, desired_size=desired, max_size=largest
            ),
            update_config=aws.eks.NodeGroupUpdateConfigArgs(max_unavailable_percentage=args.update_percent),
            node_repair_config=aws.eks.NodeGroupNodeRepairConfigArgs(enabled=args.is_repaired),
            labels=dict(args.labels),
            taints=[
                aws.eks.NodeGroupTaintArgs(key=taint.key, value=taint.value, effect=_EFFECTS[taint.effect])
                for taint in (*args.taints, *args.start_up_taints)
            ],
            launch_template=aws.eks.NodeGroupLaunchTemplateArgs(
                id=template.id, version=template.latest_version.apply(str)
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                # The autoscaler moves it.
                ignore_changes=["scalingConfig.desiredSize"],
                # A reservation holds the machines once: the new group cannot start beside the old one.
                delete_before_replace=plan.reservation_id is not None,
            ),
        )

    def _make_template_tags(self) -> None:
        args = self._args
        tags = template_tags(
            args.plan,
            labels=args.labels,
            taints=args.taints,
            disk_gib=args.disk_gib,
            devices_per_gpu=self._devices_per_gpu(),
        )
        for key, value in tags.items():
            aws.autoscaling.Tag(
                f"{self._args.name}-{key.partition('/node-template/')[2]}",
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
        max_pods=context.settings.network.pods_per_node,
        tags=names.node_tags(context.settings),
    )


def system_group(context: BuildContext, network: Network) -> NodeGroupArgs:
    """The group that everything of the platform runs on."""
    system, request = context.settings.system_nodes, context.settings.launch_requests()[0]
    plan = launch_plan(request, catalog=context.catalog, network_zones=context.settings.network.availability_zones)
    return NodeGroupArgs(
        name=request.name,
        plan=plan,
        subnet_ids=[network.private_subnet_ids[zone] for zone in plan.availability_zones],
        ami_type="AL2023_x86_64_STANDARD",
        release_version=context.ami_release("AL2023_x86_64_STANDARD"),
        sizes=(system.min_size, system.desired_size, system.max_size),
        disk_gib=system.disk_gib,
        labels={GROUP_LABEL: request.name},
        taints=(),
        start_up_taints=(),
        update_percent=_SYSTEM_UPDATE_PERCENT,
        is_repaired=True,
    )


def gpu_group(context: BuildContext, network: Network, group: GpuGroup) -> NodeGroupArgs:
    """One GPU group; labels and taints are those that jobs are told of."""
    zones = context.settings.network.availability_zones
    plan = launch_plan(group, catalog=context.catalog, network_zones=zones)
    seen_by_jobs = gpu_group_output(group, catalog=context.catalog, network_zones=zones)
    return NodeGroupArgs(
        name=group.name,
        plan=plan,
        subnet_ids=[network.private_subnet_ids[zone] for zone in plan.availability_zones],
        ami_type="AL2023_x86_64_NVIDIA",
        release_version=context.ami_release("AL2023_x86_64_NVIDIA"),
        sizes=(group.min_size, group.desired_size, group.max_size),
        disk_gib=group.disk_gib,
        labels={**seen_by_jobs.labels, **sharing_labels(group.sharing)},
        taints=seen_by_jobs.taints,
        start_up_taints=(names.START_UP_TAINT,),
        update_percent=group.update_percent,
        is_repaired=group.repair,
        sharing=group.sharing,
    )

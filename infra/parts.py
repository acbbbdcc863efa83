"""What each component of the stack is given, out of settings, release and the components before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from infra import naming
from infra.addons import BEFORE_NODES, AddOnArgs
from infra.alerts import AlertTopic
from infra.buckets import Retention
from infra.budget import Budget, BudgetArgs
from infra.capacity import launch_plan
from infra.catalog import Catalog
from infra.cluster import Access, Cluster, ClusterArgs
from infra.database import Database, DatabaseArgs
from infra.encryption import Encryption, EncryptionArgs
from infra.iam import Role
from infra.identity import CNI_ACCOUNT, Identity, IdentityArgs, Scope
from infra.network import Network, NetworkArgs, Zone
from infra.node_groups import NodeGroupArgs, NodesArgs
from infra.outputs import GROUP_LABEL, Workload, gpu_group_output
from infra.protection import Protection, protection_of
from infra.registry import Registry, RegistryArgs
from infra.release import AmiType, ReleaseManifest
from infra.settings.network import subnets_of
from infra.settings.nodes import GpuGroup
from infra.settings.stack import StackSettings
from infra.storage import Storage, StorageArgs
from platform_charts.gpu import node_labels as device_plugin_labels

_SYSTEM_UPDATE_PERCENT = 33

ADDON_WORKLOADS: Mapping[str, Workload] = {"aws-ebs-csi-driver": "ebs-csi", "aws-efs-csi-driver": "efs-csi"}
"""Add-ons that act in the account, and as which workload."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What every part below is made from.

    Attributes:
        settings: the environment.
        release: the versions.
        catalog: the instance catalogue.
        account: the AWS account.
        top: options of a component that waits for nothing.
    """

    settings: StackSettings
    release: ReleaseManifest
    catalog: Catalog
    account: pulumi.Output[str]
    top: pulumi.ResourceOptions

    @property
    def cluster_name(self) -> str:
        """Name of the EKS cluster, which most names begin with."""
        return naming.cluster_name(self.settings)

    @property
    def kubernetes(self) -> str:
        """Kubernetes minor of the cluster: the environment's own, else the release's."""
        return self.settings.cluster.kubernetes or self.release.kubernetes.version

    @property
    def protection(self) -> Protection:
        """What keeps the environment's state from being deleted."""
        return protection_of(self.settings.environment.kind)

    @property
    def scope(self) -> Scope:
        """Where the stack's identities may act."""
        return Scope(cluster_name=self.cluster_name, account=self.account, region=self.settings.aws.region)

    def after(self, *resources: pulumi.Resource) -> pulumi.ResourceOptions:
        """Options of a component that waits for others, and is deleted before them."""
        return pulumi.ResourceOptions.merge(self.top, pulumi.ResourceOptions(depends_on=list(resources)))

    def ami_release(self, ami_type: AmiType) -> str | None:
        """The pinned AMI release, if it is of the cluster's minor: an environment may stay at an older one."""
        pinned = self.release.node_image.releases[ami_type]
        return pinned if pinned and pinned.startswith(f"{self.kubernetes}.") else None


def make_encryption(ground: Ground) -> Encryption:
    """KMS keys, one for each kind of data."""
    args = EncryptionArgs(
        cluster_name=ground.cluster_name,
        account=ground.account,
        region=ground.settings.aws.region,
        protection=ground.protection,
    )
    return Encryption("encryption", args, ground.top)


def make_network(ground: Ground, encryption: Encryption) -> Network:
    """VPC, subnets by zone, endpoints and flow logs."""
    network, subnets = ground.settings.network, subnets_of(ground.settings.network)
    args = NetworkArgs(
        cluster_name=ground.cluster_name,
        account=ground.account,
        region=ground.settings.aws.region,
        cidr=str(network.cidr),
        zones=[
            Zone(name=name, private_cidr=str(private), public_cidr=str(public))
            for name, private, public in zip(network.availability_zones, subnets.private, subnets.public, strict=True)
        ],
        has_nat_per_zone=network.nat == "per_az",
        interface_endpoints=network.interface_endpoints,
        flow_log_days=network.flow_log_days,
        logs_key_arn=encryption.keys["logs"],
    )
    return Network("network", args, ground.top)


def make_cluster(ground: Ground, encryption: Encryption, network: Network) -> Cluster:
    """EKS's control plane and who may reach it."""
    cluster = ground.settings.cluster
    args = ClusterArgs(
        name=ground.cluster_name,
        kubernetes=ground.kubernetes,
        support=cluster.support.upper(),
        account=ground.account,
        subnet_ids=list(network.private_subnet_ids.values()),
        public_cidrs=[str(cidr) for cidr in cluster.public_cidrs],
        service_cidr=str(ground.settings.network.service_cidr),
        logs=cluster.logs,
        log_days=cluster.log_days,
        logs_key_arn=encryption.keys["logs"],
        secrets_key_arn=encryption.keys["cluster"],
        has_deletion_protection=ground.protection.deletion_protection,
        access=access_of(ground.settings),
    )
    return Cluster("cluster", args, ground.top)


def access_of(settings: StackSettings) -> Sequence[Access]:
    """Who may do what in the cluster: one entry per IAM role, however often the settings name it."""
    admins = dict.fromkeys(settings.cluster.admin_roles)
    submitters = dict.fromkeys(role for team in settings.teams for role in team.roles)
    return [
        Access(
            principal_arn=role,
            is_admin=role in admins,
            groups=[naming.team_group(team.name) for team in settings.teams if role in team.roles],
        )
        for role in admins | submitters
    ]


def split_addons(ground: Ground, cni_role: Role, identity: Identity) -> tuple[Sequence[AddOnArgs], Sequence[AddOnArgs]]:
    """The release's add-ons: those before the first node, and those after it."""
    roles: dict[str, dict[str, pulumi.Output[str]]] = {"vpc-cni": {CNI_ACCOUNT.name: cni_role.arn}}
    for addon, workload in ADDON_WORKLOADS.items():
        accounts = naming.PLATFORM_ACCOUNTS[workload]
        roles[addon] = {account.name: identity.roles[workload].arn for account in accounts}
    every = [
        AddOnArgs(name=name, version=addon.version, roles=roles.get(name, {}))
        for name, addon in ground.release.addons.items()
    ]
    early = [addon for addon in every if addon.name in BEFORE_NODES]
    return early, [addon for addon in every if addon.name not in BEFORE_NODES]


def nodes_args(ground: Ground, encryption: Encryption, network: Network, cluster: Cluster, role: Role) -> NodesArgs:
    """What all node groups have in common."""
    return NodesArgs(
        cluster_name=cluster.name,
        cluster_security_group_id=cluster.security_group_id,
        efa_security_group_id=network.efa_security_group_id,
        kubernetes=ground.kubernetes,
        role_arn=role.arn,
        volume_key_arn=encryption.keys["volumes"],
        max_pods=ground.settings.network.pods_per_node,
        tags=naming.node_tags(ground.settings),
    )


def system_group(ground: Ground, network: Network) -> NodeGroupArgs:
    """The group that everything of the platform runs on."""
    system, request = ground.settings.system_nodes, ground.settings.launch_requests()[0]
    plan = launch_plan(request, catalog=ground.catalog, network_zones=ground.settings.network.availability_zones)
    return NodeGroupArgs(
        name=request.name,
        plan=plan,
        subnet_ids=[network.private_subnet_ids[zone] for zone in plan.availability_zones],
        ami_type="AL2023_x86_64_STANDARD",
        release_version=ground.ami_release("AL2023_x86_64_STANDARD"),
        sizes=(system.min_size, system.desired_size, system.max_size),
        disk_gib=system.disk_gib,
        labels={GROUP_LABEL: request.name},
        taints=(),
        start_up_taints=(),
        update_percent=_SYSTEM_UPDATE_PERCENT,
        is_repaired=True,
    )


def gpu_group(ground: Ground, network: Network, group: GpuGroup) -> NodeGroupArgs:
    """One GPU group; labels and taints are those that jobs are told of."""
    zones = ground.settings.network.availability_zones
    plan = launch_plan(group, catalog=ground.catalog, network_zones=zones)
    seen_by_jobs = gpu_group_output(group, catalog=ground.catalog, network_zones=zones)
    return NodeGroupArgs(
        name=group.name,
        plan=plan,
        subnet_ids=[network.private_subnet_ids[zone] for zone in plan.availability_zones],
        ami_type="AL2023_x86_64_NVIDIA",
        release_version=ground.ami_release("AL2023_x86_64_NVIDIA"),
        sizes=(group.min_size, group.desired_size, group.max_size),
        disk_gib=group.disk_gib,
        labels={**seen_by_jobs.labels, **device_plugin_labels(group.sharing)},
        taints=seen_by_jobs.taints,
        start_up_taints=(naming.START_UP_TAINT,),
        update_percent=group.update_percent,
        is_repaired=group.repair,
        sharing=group.sharing,
    )


def make_storage(ground: Ground, encryption: Encryption, network: Network, cluster: Cluster) -> Storage:
    """Buckets and the file system."""
    storage = ground.settings.storage
    args = StorageArgs(
        cluster_name=ground.cluster_name,
        account=ground.account,
        key_arn=encryption.keys["storage"],
        retention=Retention(
            noncurrent_days=storage.noncurrent_days,
            abort_upload_days=storage.abort_upload_days,
            infrequent_access_days=storage.infrequent_access_days,
        ),
        efs_throughput=storage.efs_throughput,
        efs_uid=storage.efs_uid,
        teams=[team.name for team in ground.settings.teams],
        vpc_id=network.vpc_id,
        subnet_ids=network.private_subnet_ids,
        client_security_group_id=cluster.security_group_id,
        protection=ground.protection,
    )
    return Storage("storage", args, ground.top)


def make_database(ground: Ground, encryption: Encryption, network: Network, cluster: Cluster) -> Database:
    """PostgreSQL behind MLflow."""
    database = ground.settings.database
    args = DatabaseArgs(
        identifier=f"{ground.cluster_name}-mlflow",
        account=ground.account,
        instance_class=database.instance_class,
        engine_version=database.engine_version,
        allocated_gib=database.allocated_gib,
        max_allocated_gib=database.max_allocated_gib,
        is_multi_az=database.multi_az,
        vpc_id=network.vpc_id,
        subnet_ids=list(network.private_subnet_ids.values()),
        client_security_group_id=cluster.security_group_id,
        key_arn=encryption.keys["database"],
        logs_key_arn=encryption.keys["logs"],
        log_days=ground.settings.cluster.log_days,
        protection=ground.protection,
    )
    return Database("mlflow", args, ground.top)


def make_registry(ground: Ground, encryption: Encryption) -> Registry:
    """Repositories for the release's images that are ours."""
    registry = ground.settings.registry
    args = RegistryArgs(
        cluster_name=ground.cluster_name,
        repositories={name: image.repository for name, image in ground.release.images.items() if image.is_ours},
        keep_images=registry.keep_images,
        untagged_days=registry.untagged_days,
        pull_through=registry.pull_through,
        key_arn=encryption.keys["registry"],
        protection=ground.protection,
    )
    return Registry("registry", args, ground.top)


def make_identity(
    ground: Ground, encryption: Encryption, cluster: Cluster, storage: Storage, database: Database
) -> Identity:
    """A role for each workload, over just what it touches."""
    file_system, monitoring = storage.file_system, ground.settings.monitoring
    args = IdentityArgs(
        scope=ground.scope,
        cluster_name=cluster.name,
        teams=[team.name for team in ground.settings.teams],
        checkpoints_arn=storage.checkpoints.arn,
        artifacts_arn=storage.artifacts.arn,
        storage_key_arn=encryption.keys["storage"],
        file_system_arn=file_system.arn,
        access_point_arns=[file_system.datasets.arn, *(point.arn for point in file_system.teams.values())],
        volume_key_arn=encryption.keys["volumes"],
        database_secret_arn=database.secret_arn,
        database_key_arn=encryption.keys["database"],
        alert_topic=None if monitoring.alert_email is None else naming.alert_topic_name(ground.settings),
        webhook_secret=monitoring.webhook_secret,
    )
    return Identity("identity", args, ground.top)


def make_alerts(ground: Ground) -> AlertTopic | None:
    """The topic that mails alerts, where somebody gets them by mail."""
    email = ground.settings.monitoring.alert_email
    if email is None:
        return None
    return AlertTopic("alerts", ground.top, topic=naming.alert_topic_name(ground.settings), email=email)


def make_budget(ground: Ground) -> None:
    """The budget with its alarm, where the environment has one."""
    budget = ground.settings.budget
    if budget is None:
        return
    args = BudgetArgs(
        name=ground.cluster_name,
        monthly_usd=budget.monthly_usd,
        alert_percent=budget.alert_percent,
        email=budget.email,
        tag=(naming.STACK_TAG, naming.stack_tag(ground.settings)),
    )
    Budget("budget", args, ground.top)

"""The AWS side of the stack: every component, in dependency order."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.aws.addons import ADDON_WORKLOADS, AddOns, addon_args
from infra.aws.alerts import AlertTopic, make_alert_topic
from infra.aws.budget import make_budget
from infra.aws.cluster import Cluster
from infra.aws.context import BuildContext
from infra.aws.database import Database, make_database
from infra.aws.encryption import Encryption, make_encryption
from infra.aws.foundation import make_cluster, make_network
from infra.aws.identity import Identity, make_cni_role, make_identity, make_node_role
from infra.aws.logs import make_container_logs
from infra.aws.network import Network
from infra.aws.node_groups import ManagedNodeGroup, node_group_args, nodes_args
from infra.aws.provider import account_of, make_provider
from infra.aws.registry import Registry, make_registry
from infra.aws.storage import Storage, make_storage
from infra.spec.catalog import Catalog, load_catalog
from infra.spec.node_group import NodeGroups, resolve_node_groups
from infra.spec.release import ReleaseManifest, load_release
from infra.spec.settings.stack import StackSettings


@dataclass(frozen=True, kw_only=True)
class Platform:
    """The AWS components, which `platform_charts.install` builds on.

    Attributes:
        settings: the environment.
        release: the pinned versions.
        catalog: the instance catalogue.
        node_groups: the node groups, resolved.
        provider: the AWS provider.
        account: the AWS account.
        network: the VPC.
        encryption: the KMS keys.
        cluster: the control plane.
        system_nodes: the node group of the platform's own pods.
        addons: the add-ons installed after the nodes, e.g. the CSI drivers that volumes depend on.
        storage: buckets and the file system.
        database: MLflow's backend store.
        registry: repositories of the project's images.
        identity: IAM roles of the workloads.
        alert_topic: the SNS topic for alerts; None if `monitoring.alert_email` is not set.
    """

    settings: StackSettings
    release: ReleaseManifest
    catalog: Catalog
    node_groups: NodeGroups
    provider: aws.Provider
    account: pulumi.Output[str]
    network: Network
    encryption: Encryption
    cluster: Cluster
    system_nodes: ManagedNodeGroup
    addons: AddOns
    storage: Storage
    database: Database
    registry: Registry
    identity: Identity
    alert_topic: AlertTopic | None


def make_platform(settings: StackSettings) -> Platform:
    """Register every AWS resource of an environment.

    Raises:
        SettingsError: a node group combines capacity, placement and EFA in a way that AWS does not support.
    """
    release, catalog = load_release(), load_catalog()
    groups = resolve_node_groups(settings, catalog=catalog)
    provider = make_provider(settings, release)
    account = account_of(provider)
    opts = pulumi.ResourceOptions(providers=[provider])
    context = BuildContext(settings=settings, release=release, account=account, opts=opts)

    encryption = make_encryption(context)
    network = make_network(context, encryption)
    cluster = make_cluster(context, encryption, network)
    storage = make_storage(context, encryption, network, cluster)
    database = make_database(context, encryption, network, cluster)
    container_logs = make_container_logs(context, encryption)
    identity = make_identity(context, encryption, cluster, storage, database, container_logs=container_logs)

    node_role, cni_role = make_node_role(context), make_cni_role(context)
    before_nodes, after_nodes = addon_args(context, cni_role, identity)
    cni_opts = context.opts if cni_role is None else context.after(cni_role)
    node_addons = AddOns("before-nodes", before_nodes, cluster_name=cluster.name, opts=cni_opts)
    nodes = nodes_args(context, encryption, network, cluster, node_role)
    # Pulumi deletes in reverse order: nodes need their routes and the CNI until they have left the cluster.
    node_opts = context.after(network, node_addons, node_role)
    system_nodes, *_ = [
        ManagedNodeGroup(node_group_args(context, network, group), nodes, node_opts) for group in groups.all()
    ]
    addon_opts = context.after(
        system_nodes, *(role for workload, role in identity.roles.items() if workload in ADDON_WORKLOADS.values())
    )
    addons = AddOns("after-nodes", after_nodes, cluster_name=cluster.name, opts=addon_opts)
    make_budget(context)
    return Platform(
        settings=settings,
        release=release,
        catalog=catalog,
        node_groups=groups,
        provider=provider,
        account=account,
        network=network,
        encryption=encryption,
        cluster=cluster,
        system_nodes=system_nodes,
        addons=addons,
        storage=storage,
        database=database,
        registry=make_registry(context, encryption),
        identity=identity,
        alert_topic=make_alert_topic(context),
    )

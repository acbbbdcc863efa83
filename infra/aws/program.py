"""The stack: settings and release in, components in the order in which they need each other."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.aws.addons import ADDON_WORKLOADS, AddOns, split_addons
from infra.aws.alerts import AlertTopic, make_alerts
from infra.aws.budget import make_budget
from infra.aws.cluster import Cluster, make_cluster
from infra.aws.context import BuildContext
from infra.aws.database import Database, make_database
from infra.aws.encryption import Encryption, make_encryption
from infra.aws.identity import Identity, make_cni_role, make_identity, make_node_role
from infra.aws.network import Network, make_network
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
    """Everything of AWS; what is installed on the cluster starts from here.

    Attributes:
        settings: the environment.
        release: the versions.
        catalog: the instance catalogue.
        node_groups: the node groups, resolved.
        provider: the AWS provider.
        account: the AWS account.
        network: the VPC.
        encryption: the KMS keys.
        cluster: the control plane.
        system_nodes: the group that everything of the platform runs on.
        addons: the last add-ons; a pod with a volume or a metric has to wait for them.
        storage: buckets and the file system.
        database: MLflow's backend.
        registry: repositories of our images.
        identity: roles of the workloads.
        alerts: the topic that mails alerts, where somebody gets them by mail.
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
    alerts: AlertTopic | None


def build(settings: StackSettings) -> Platform:
    """Register every AWS resource of an environment.

    Raises:
        SettingsError: a node group's combination of capacity, placement and EFA is impossible.
    """
    release, catalog = load_release(), load_catalog()
    groups = resolve_node_groups(settings, catalog=catalog)
    provider = make_provider(settings, release)
    account = account_of(provider)
    top = pulumi.ResourceOptions(providers=[provider])
    context = BuildContext(settings=settings, release=release, account=account, top=top)

    encryption = make_encryption(context)
    network = make_network(context, encryption)
    cluster = make_cluster(context, encryption, network)
    storage = make_storage(context, encryption, network, cluster)
    database = make_database(context, encryption, network, cluster)
    identity = make_identity(context, encryption, cluster, storage, database)

    node_role = make_node_role(context.scope, pull_through=settings.registry.pull_through, opts=top)
    cni_role = make_cni_role(context.scope, opts=top)
    early, late = split_addons(context, cni_role, identity)
    basics = AddOns("before-nodes", early, cluster_name=cluster.name, opts=context.after(cni_role))
    nodes = nodes_args(context, encryption, network, cluster, node_role)
    # Nodes go before their routes and their network add-on do: without those they could not even sign off.
    join = context.after(network, basics, node_role)
    system_nodes, *_ = [
        ManagedNodeGroup(node_group_args(context, network, group), nodes, join) for group in groups.all()
    ]
    after_nodes = context.after(system_nodes, *(identity.roles[workload] for workload in ADDON_WORKLOADS.values()))
    addons = AddOns("after-nodes", late, cluster_name=cluster.name, opts=after_nodes)
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
        alerts=make_alerts(context),
    )

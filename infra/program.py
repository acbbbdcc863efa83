"""The stack: settings and release in, components in the order in which they need each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra import parts
from infra.addons import AddOns
from infra.alerts import AlertTopic
from infra.catalog import Catalog, load_catalog
from infra.cluster import Cluster
from infra.database import Database
from infra.encryption import Encryption
from infra.identity import Identity, make_cni_role, make_node_role
from infra.network import Network
from infra.node_groups import NodeGroup
from infra.provider import account_of, make_provider
from infra.registry import Registry
from infra.release import ReleaseManifest, load_release
from infra.settings.stack import StackSettings
from infra.storage import Storage


@dataclass(frozen=True, kw_only=True)
class Platform:
    """Everything of AWS; what is installed on the cluster starts from here.

    Attributes:
        settings: the environment.
        release: the versions.
        catalog: the instance catalogue.
        provider: the AWS provider.
        account: the AWS account.
        network: the VPC.
        encryption: the KMS keys.
        cluster: the control plane.
        system_nodes: the group that everything of the platform runs on.
        gpu_groups: GPU groups by name.
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
    provider: aws.Provider
    account: pulumi.Output[str]
    network: Network
    encryption: Encryption
    cluster: Cluster
    system_nodes: NodeGroup
    gpu_groups: Mapping[str, NodeGroup]
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
    provider = make_provider(settings, release)
    account = account_of(provider)
    top = pulumi.ResourceOptions(providers=[provider])
    ground = parts.Ground(settings=settings, release=release, catalog=catalog, account=account, top=top)

    encryption = parts.make_encryption(ground)
    network = parts.make_network(ground, encryption)
    cluster = parts.make_cluster(ground, encryption, network)
    storage = parts.make_storage(ground, encryption, network, cluster)
    database = parts.make_database(ground, encryption, network, cluster)
    identity = parts.make_identity(ground, encryption, cluster, storage, database)

    node_role = make_node_role(ground.scope, pull_through=settings.registry.pull_through, opts=top)
    cni_role = make_cni_role(ground.scope, opts=top)
    early, late = parts.split_addons(ground, cni_role, identity)
    basics = AddOns("before-nodes", early, cluster_name=cluster.name, opts=ground.after(cni_role))
    nodes = parts.nodes_args(ground, encryption, network, cluster, node_role)
    # Nodes go before their routes and their network add-on do: without those they could not even sign off.
    join = ground.after(network, basics, node_role)
    system_nodes = NodeGroup(parts.system_group(ground, network), nodes, join)
    gpu_groups = {
        group.name: NodeGroup(parts.gpu_group(ground, network, group), nodes, join) for group in settings.gpu_groups
    }
    after_nodes = ground.after(system_nodes, *(identity.roles[workload] for workload in parts.ADDON_WORKLOADS.values()))
    addons = AddOns("after-nodes", late, cluster_name=cluster.name, opts=after_nodes)
    parts.make_budget(ground)
    return Platform(
        settings=settings,
        release=release,
        catalog=catalog,
        provider=provider,
        account=account,
        network=network,
        encryption=encryption,
        cluster=cluster,
        system_nodes=system_nodes,
        gpu_groups=gpu_groups,
        addons=addons,
        storage=storage,
        database=database,
        registry=parts.make_registry(ground, encryption),
        identity=identity,
        alerts=parts.make_alerts(ground),
    )

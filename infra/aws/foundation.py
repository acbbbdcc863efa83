"""The network and the cluster of an environment: made by the stack, or found where the settings name existing ones."""

from __future__ import annotations

from infra.aws.cluster import Cluster, ExistingCluster, client_args
from infra.aws.context import BuildContext
from infra.aws.control_plane import ControlPlaneArgs, NewCluster
from infra.aws.encryption import Encryption
from infra.aws.network import ExistingNetwork, Network
from infra.aws.vpc import NewNetwork, VpcArgs, Zone
from infra.spec.settings.network import subnets_of


def make_network(context: BuildContext, encryption: Encryption) -> Network:
    """Make the VPC, or refer to the existing one."""
    network, subnets = context.settings.network, subnets_of(context.settings.network)
    if network.existing is not None:
        ids = {zone: network.existing.private_subnets[zone].id for zone in network.availability_zones}
        return ExistingNetwork("network", network.existing.vpc_id, ids, context.opts)
    args = VpcArgs(
        name_prefix=context.name_prefix,
        account=context.account,
        region=context.settings.aws.region,
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
    return NewNetwork("network", args, context.opts)


def make_cluster(context: BuildContext, encryption: Encryption, network: Network) -> Cluster:
    """Make the control plane, or look the existing one up; its access entries are the stack's in both cases."""
    cluster, clients = context.settings.cluster, client_args(context.settings)
    if cluster.existing is not None:
        groups = cluster.existing.node_security_groups
        return ExistingCluster("cluster", cluster.existing.name, clients, context.opts, node_groups=groups)
    args = ControlPlaneArgs(
        name=context.cluster_name,
        kubernetes=context.kubernetes,
        support=cluster.support.upper(),
        account=context.account,
        subnet_ids=list(network.private_subnet_ids.values()),
        public_cidrs=[str(cidr) for cidr in cluster.public_cidrs],
        service_cidr=str(context.settings.network.service_cidr),
        logs=cluster.logs,
        log_days=cluster.log_days,
        logs_key_arn=encryption.keys["logs"],
        secrets_key_arn=encryption.keys["cluster"],
        has_deletion_protection=context.protection.deletion_protection,
        clients=clients,
    )
    return NewCluster("cluster", args, context.opts)

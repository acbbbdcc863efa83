"""Addresses that an environment needs in each private subnet, and those of its API server."""

from __future__ import annotations

from collections.abc import Mapping

from infra.spec.capacity import zones_of
from infra.spec.settings.network import addresses_per_node, subnets_of
from infra.spec.settings.stack import StackSettings

SHARED_ADDRESSES = 32
"""Addresses of a private subnet reserved for other uses than nodes: endpoints, EKS, EFS, the database, spare."""


def node_addresses(settings: StackSettings) -> Mapping[str, int]:
    """Addresses of the nodes and the file servers with all groups at max_size, by zone of the network."""
    network = settings.network
    per_node = addresses_per_node(network.pods_per_node)
    needed = dict.fromkeys(network.availability_zones, 0)
    for request in settings.launch_requests():
        zones = zones_of(request, network.availability_zones)
        for zone in set(zones) & set(needed):
            needed[zone] += request.largest_in_a_zone(len(zones)) * per_node
    lustre = settings.storage.lustre
    if lustre is not None and lustre.availability_zone in needed:
        needed[lustre.availability_zone] += lustre.largest_servers
    return needed


def control_plane_cidrs(settings: StackSettings) -> tuple[str, ...]:
    """Ranges of the API server's network interfaces: the subnets that the cluster was made with."""
    existing = settings.cluster.existing
    stated = () if existing is None else existing.control_plane_cidrs
    return tuple(map(str, stated or subnets_of(settings.network).private))

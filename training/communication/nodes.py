"""Which ranks share a node, and the process groups within nodes and between them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from training.config.schema import CommunicationSettings
from training.errors import SettingsError
from training.launch.task import RankPlace

WITHIN, BETWEEN = "within nodes", "between nodes"
"""Descriptions of the groups, which torch's flight recorder shows."""


@dataclass(frozen=True, kw_only=True)
class NodeGroups:
    """The two groups of a rank.

    Attributes:
        within: the ranks of its node.
        between: the ranks that have its place in their node, one of each node.
    """

    within: dist.ProcessGroup
    between: dist.ProcessGroup


def ranks_per_node(settings: CommunicationSettings, place: RankPlace, device: torch.device) -> int:
    """The ranks of every node, which are consecutive: as set, or as the launcher has started them. Every rank calls it.

    Raises:
        SettingsError: the launcher has started different numbers on the nodes, one on each, or all on one node.
    """
    if settings.ranks_per_node is not None:
        return settings.ranks_per_node
    is_consecutive = place.rank % place.local_world == place.local_rank
    own = torch.tensor([place.local_world if is_consecutive else 0], device=device)
    found = [torch.empty_like(own) for _ in range(place.world)]
    dist.all_gather(found, own)
    sizes = sorted({int(size) for size in found})
    if len(sizes) > 1 or sizes[0] == 0:
        raise SettingsError(
            f"communication.hierarchical and node_steps need equal numbers of consecutive ranks on every node, got {sizes}",
            remedy="start as many workers on every node, or leave out communication.hierarchical and node_steps",
        )
    if sizes[0] in {1, place.world}:
        raise SettingsError(
            "communication.hierarchical and node_steps need two nodes or more with two ranks or more, and the launcher has started "
            f"{sizes[0]} of {place.world} ranks on each",
            remedy="leave them out, or say with communication.ranks_per_node which ranks are near each other",
        )
    return sizes[0]


def node_groups(ranks: int, *, timeout_seconds: float) -> NodeGroups:
    """The groups of this rank, for nodes of `ranks` ranks. Every rank calls it.

    A device mesh has groups like these, but with the timeouts of torch, of half an hour.
    """
    world, timeout = dist.get_world_size(), timedelta(seconds=timeout_seconds)
    nodes = [list(range(first, first + ranks)) for first in range(0, world, ranks)]
    within, _ = dist.new_subgroups_by_enumeration(nodes, timeout=timeout, group_desc=WITHIN)
    counterparts = [list(ranks_of_all) for ranks_of_all in zip(*nodes, strict=True)]
    between, _ = dist.new_subgroups_by_enumeration(counterparts, timeout=timeout, group_desc=BETWEEN)
    assert isinstance(within, dist.ProcessGroup), "this rank is on no node"
    assert isinstance(between, dist.ProcessGroup), "this rank has no counterparts"
    return NodeGroups(within=within, between=between)

"""How the node groups at their largest are divided: each team's own share, and the rest, which no team owns.

The division goes by GPUs, the scarce resource: a team that owns a quarter of a group's GPUs owns a quarter of its cores
and memory. The figures of GPU nodes are those of the machines, not what the kubelet leaves of them, so that a job never
waits for cores while its GPUs are idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.spec.node_group import NodeGroup, NodeGroups
from infra.spec.node_labels import GPU_RESOURCE
from infra.spec.settings.platform import Team
from infra.spec.settings.stack import StackSettings

CPU = "cpu"
MEMORY = "memory"

Amounts = Mapping[str, int]
"""Amount by resource: a count, of cores too; of memory in MiB."""

RESOURCES = (CPU, MEMORY, GPU_RESOURCE)
"""What is divided. EFA and huge pages come with a node's GPUs, and Kueue is told not to count them; it would never admit
a job that asks for something else."""

_DECIMAL = ("", "k", "M", "G")
_BINARY = ("Mi", "Gi", "Ti", "Pi")
"""Suffixes of Kubernetes' quantities; an amount of memory is in MiB."""


@dataclass(frozen=True, kw_only=True)
class GroupShares:
    """A node group at its largest, divided.

    Attributes:
        group: the node group.
        total: what all its nodes have together, as far as jobs may have it.
        owned: each team's own part of it.
    """

    group: NodeGroup
    total: Amounts
    owned: Mapping[str, Amounts]

    @property
    def has_gpus(self) -> bool:
        """Whether its nodes have GPUs."""
        return self.total[GPU_RESOURCE] > 0

    @property
    def unowned(self) -> Amounts:
        """What no team owns."""
        return {name: self.total[name] - sum(own[name] for own in self.owned.values()) for name in RESOURCES}


def quantity(resource: str, amount: int) -> str:
    """An amount in Kubernetes' canonical form: with the largest suffix that leaves it whole (apimachinery, resource.Quantity).

    Kueue's webhook writes the quantities of a new ClusterQueue in this form and leaves those of an updated one as they are, so any
    other form would be a change in the first preview after `up`.
    """
    base, suffixes = (1024, _BINARY) if resource == MEMORY else (1000, _DECIMAL)
    power = 0
    while amount and amount % base == 0 and power < len(suffixes) - 1:
        amount, power = amount // base, power + 1
    return f"{amount}{suffixes[power]}" if amount else "0"


def divide(settings: StackSettings, groups: NodeGroups) -> tuple[GroupShares, ...]:
    """Divide every node group that jobs run on among the teams; the head group first."""
    return (_divide_heads(settings, groups.heads), *(_divide_gpus(settings, group) for group in groups.gpu))


def reachable_gpus(team: Team, groups: NodeGroups) -> int:
    """GPUs that the team's pods may hold at one time: all there are if it may borrow, else its own."""
    if not team.borrow:
        return sum(team.gpus.values())
    return sum(group.max_size * group.gpu_devices for group in groups.gpu)


def _divide_heads(settings: StackSettings, group: NodeGroup) -> GroupShares:
    """Equal parts of what the kubelet leaves to pods: a head without room keeps the GPUs of its job idle."""
    total = {
        CPU: group.max_size * group.allocatable_millicores // 1000,
        MEMORY: group.max_size * group.allocatable_memory_bytes // 2**20,
        GPU_RESOURCE: 0,
    }
    owned = {team.name: _part(total, 1, len(settings.teams)) for team in settings.teams}
    return GroupShares(group=group, total=total, owned=owned)


def _divide_gpus(settings: StackSettings, group: NodeGroup) -> GroupShares:
    total = _amounts(group)
    gpus = {team.name: team.gpus.get(group.name, 0) for team in settings.teams}
    owned = {team: _part(total, own, total[GPU_RESOURCE]) for team, own in gpus.items()}
    return GroupShares(group=group, total=total, owned=owned)


def _amounts(group: NodeGroup) -> Amounts:
    return {
        CPU: group.max_size * group.instance.vcpus,
        MEMORY: group.max_size * group.instance.memory_gib * 1024,
        GPU_RESOURCE: group.max_size * group.gpu_devices,
    }


def _part(total: Amounts, numerator: int, denominator: int) -> Amounts:
    """A fraction of everything, rounded down: parts never add up to more than the whole."""
    return {name: amount * numerator // denominator for name, amount in total.items()}

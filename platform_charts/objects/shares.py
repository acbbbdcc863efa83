"""How the node groups at their largest are divided: each team's own share, and the rest, which no team owns.

The division goes by GPUs, the scarce resource: a team that owns a quarter of a group's GPUs owns a quarter of its cores
and memory. The figures are those of the machines, not what the kubelet leaves of them, so that a job never waits for
cores while its GPUs are idle.
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

_PLATFORM_PART = 2
"""One part in two of the system nodes is kept for the platform itself: operators, monitoring and MLflow."""


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
    """An amount as Kubernetes writes it, in the form the API server stores."""
    return f"{amount}Mi" if resource == MEMORY and amount else str(amount)


def divide(settings: StackSettings, groups: NodeGroups) -> tuple[GroupShares, ...]:
    """Divide every node group among the teams; the system's first."""
    return (_divide_system(settings, groups.system), *(_divide_gpus(settings, group) for group in groups.gpu))


def reachable_gpus(team: Team, groups: NodeGroups) -> int:
    """GPUs that the team's pods may hold at one time: all there are if it may borrow, else its own."""
    if not team.borrow:
        return sum(team.gpus.values())
    return sum(group.max_size * group.gpu_devices for group in groups.gpu)


def _divide_system(settings: StackSettings, group: NodeGroup) -> GroupShares:
    total = {name: amount // _PLATFORM_PART for name, amount in _amounts(group).items()}
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

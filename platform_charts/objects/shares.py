"""Whose is what: the node groups at their largest, cut into the teams' own shares and the rest that nobody owns.

The cut goes by GPUs, the scarce thing: who owns a quarter of a group's GPUs owns a quarter of its cores and memory. The
figures are those of the machines, not what the kubelet leaves of them, so that a job never waits for cores while its
GPUs are free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.spec.catalog import Catalog
from infra.spec.outputs import GROUP_LABEL, SYSTEM_GROUP, Taint, gpu_group_output
from infra.spec.settings.nodes import GpuGroup
from infra.spec.settings.platform import Team
from infra.spec.settings.stack import StackSettings
from infra.spec.sharing import devices_per_gpu

CPU = "cpu"
MEMORY = "memory"
GPU = "nvidia.com/gpu"

Amounts = Mapping[str, int]
"""Amount by resource: a count, of cores too; of memory in MiB."""

RESOURCES = (CPU, MEMORY, GPU)
"""What is divided. EFA and huge pages come with a node's GPUs, and Kueue is told not to count them; it would never admit
a job that asks for something else."""

_PLATFORM_PART = 2
"""One part in two of the system nodes is kept for the platform itself: operators, monitoring and MLflow."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """A node group at its largest.

    Attributes:
        name: its name, and that of its ResourceFlavor.
        labels: labels that select its nodes.
        taints: what a pod has to tolerate there.
        total: what all its nodes have together, as far as jobs may have it.
        owned: the part of it that is a team's own, by team.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    total: Amounts
    owned: Mapping[str, Amounts]

    @property
    def unowned(self) -> Amounts:
        """What is left over when every team has its own."""
        return {name: self.total[name] - sum(own[name] for own in self.owned.values()) for name in RESOURCES}


def quantity(resource: str, amount: int) -> str:
    """An amount as Kubernetes writes it, in the form the API server stores."""
    return f"{amount}Mi" if resource == MEMORY and amount else str(amount)


def groups_of(settings: StackSettings, catalog: Catalog) -> tuple[Group, ...]:
    """Every node group, the system's first.

    Raises:
        SettingsError: a group's combination of capacity, placement and EFA is impossible.
    """
    return (_system_group(settings, catalog), *(_gpu_group(group, settings, catalog) for group in settings.gpu_groups))


def reachable_gpus(team: Team, settings: StackSettings, catalog: Catalog) -> int:
    """GPUs that the team's pods may hold at one time: all there are if it may borrow, else its own."""
    if not team.borrow:
        return sum(team.gpus.values())
    return sum(group.total[GPU] for group in groups_of(settings, catalog))


def _system_group(settings: StackSettings, catalog: Catalog) -> Group:
    nodes = settings.system_nodes
    instance = catalog.find(nodes.instance_type)
    total = {
        CPU: instance.vcpus * nodes.max_size // _PLATFORM_PART,
        MEMORY: instance.memory_gib * 1024 * nodes.max_size // _PLATFORM_PART,
        GPU: 0,
    }
    return Group(
        name=SYSTEM_GROUP,
        labels={GROUP_LABEL: SYSTEM_GROUP},
        taints=(),
        total=total,
        owned={team.name: _part(total, 1, len(settings.teams)) for team in settings.teams},
    )


def _gpu_group(group: GpuGroup, settings: StackSettings, catalog: Catalog) -> Group:
    seen = gpu_group_output(group, catalog=catalog, network_zones=settings.network.availability_zones)
    instance = catalog.find(group.instance_type)
    assert instance.gpu is not None, f"settings let {group.instance_type} pass as a type with GPUs"
    devices = group.max_size * instance.gpu.count * devices_per_gpu(group.sharing, instance.gpu)
    total = {
        CPU: group.max_size * instance.vcpus,
        MEMORY: group.max_size * instance.memory_gib * 1024,
        GPU: devices,
    }
    own = {team.name: team.gpus.get(group.name, 0) for team in settings.teams}
    return Group(
        name=group.name,
        # Kueue writes these into the pods' node selector: one label is enough, and stays true when others change.
        labels={GROUP_LABEL: group.name},
        taints=seen.taints,
        total=total,
        owned={team: _part(total, gpus, devices) for team, gpus in own.items()},
    )


def _part(total: Amounts, numerator: int, denominator: int) -> Amounts:
    """A fraction of everything, rounded down: parts never add up to more than the whole."""
    return {name: amount * numerator // denominator for name, amount in total.items()}

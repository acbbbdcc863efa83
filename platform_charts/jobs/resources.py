"""What a node leaves to jobs, and a GPU's share of it: estimates from the catalogue that err on the small side.

A node that is scaled from zero cannot be asked, and a pod that is a little too large for every node waits for ever.
"""

from __future__ import annotations

from typing import NamedTuple

from infra.spec.capacity import EFA_HUGE_PAGES_BYTES
from infra.spec.catalog import Catalog, InstanceType
from infra.spec.outputs import GpuGroupOutput

_MIB_PER_GIB = 1024

_UNSEEN_MEMORY = 0.075
"""Part of an instance's memory that its operating system never sees (Karpenter, VM_MEMORY_OVERHEAD_PERCENT)."""

_EVICTION_MIB = 100
"""The kubelet's default memory.available threshold."""

_DAEMONS_MILLICORES = 500
_DAEMONS_MIB = 1024
"""Room for the daemon sets, dcgm-exporter's memory aside: CNI, kube-proxy, Pod Identity, CSI, device plugins, exporters."""

_FEW_VCPUS = 8
_FEW_PODS = 58
_MANY_PODS = 737
"""Pods by which nodeadm computes the kubelet's reserve: by network interfaces, at most these (amazon-eks-ami,
eni-max-pods.txt; up to 8 vCPUs, and above)."""

EFA_HUGE_PAGES_MIB = 5120
"""Huge pages of one pod with EFA (EKS user guide, "Run machine learning training with Elastic Fabric Adapter")."""


class Share(NamedTuple):
    """Whole CPU cores, and memory in whole GiB."""

    cpus: int
    memory_gib: int

    def times(self, count: int) -> Share:
        """That many shares."""
        return Share(self.cpus * count, self.memory_gib * count)


def gpu_share(group: GpuGroupOutput, *, catalog: Catalog) -> Share:
    """One GPU's share of what a node of the group leaves to jobs.

    Raises:
        SettingsError: the group's instance type is not in the catalogue.
    """
    instance = catalog.find(group.instance_type)
    huge_pages_mib = EFA_HUGE_PAGES_BYTES // 2**20 if group.efa_per_node else 0
    daemons_mib = _DAEMONS_MIB + catalog.dcgm_memory_mib(group.gpus_per_node)
    millicores = 1000 * instance.vcpus - _kubelet_millicores(instance.vcpus) - _DAEMONS_MILLICORES
    memory_mib = _allocatable_mib(instance) - huge_pages_mib - daemons_mib
    return Share(
        int(millicores // (1000 * group.gpus_per_node)),
        memory_mib // (_MIB_PER_GIB * group.gpus_per_node),
    )


def cpu_share(cpus: int) -> Share:
    """What a rank without a GPU gets: 3 of the 4 GiB per core that the system nodes' families have, and 1 GiB for Ray."""
    return Share(cpus, 3 * cpus + 1)


def _kubelet_millicores(vcpus: int) -> float:
    """The kubelet's reserve: 6 % of the first core, 1 % of the second, 0.5 % of two more, 0.25 % of the rest (nodeadm)."""
    return 60 + 10 * (vcpus > 1) + 5 * min(max(vcpus - 2, 0), 2) + 2.5 * max(vcpus - 4, 0)


def _allocatable_mib(instance: InstanceType) -> int:
    """What the kubelet offers: 255 MiB and 11 MiB a pod are its own (nodeadm), and what it evicts pods at is not offered."""
    pods = _FEW_PODS if instance.vcpus <= _FEW_VCPUS else _MANY_PODS
    seen_mib = instance.memory_gib * _MIB_PER_GIB * (1 - _UNSEEN_MEMORY)
    return int(seen_mib) - 255 - 11 * pods - _EVICTION_MIB

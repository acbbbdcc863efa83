"""What a node leaves to jobs, and a GPU's share of it: estimates from the catalogue that err on the small side.

A group at zero has no node to look at, and a pod that is slightly too large for every node stays pending for ever.
"""

from __future__ import annotations

from typing import NamedTuple

from infra.spec import kubelet
from infra.spec.catalog import Catalog
from infra.spec.outputs import GpuGroupOutput

_DAEMONS_MILLICORES = 500
_DAEMONS_MIB = 1024
"""Room for the daemon sets, dcgm-exporter's memory aside: CNI, kube-proxy, Pod Identity, CSI, device plugins, exporters."""

EFA_HUGE_PAGES_MIB = 5120
"""Huge pages of one pod with EFA (EKS user guide, "Run machine learning training with Elastic Fabric Adapter").

It has all EFA interfaces of its node, but does not ask for all huge pages: their number depends on the version of the EFA
installer in the AMI, and a pod that asks for more than there are stays pending.
"""


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
    instance, gpus = catalog.find_instance(group.instance_type), group.gpus_per_node
    memory = kubelet.allocatable_memory_bytes(
        instance.memory_gib,
        max_pods=kubelet.default_max_pods(instance.vcpus),
        huge_pages_bytes=instance.efa_huge_pages_mib * 2**20 if group.efa_per_node else 0,
    )
    daemons = (_DAEMONS_MIB + catalog.dcgm_memory_mib(gpus)) * 2**20
    millicores = kubelet.allocatable_millicores(instance.vcpus) - _DAEMONS_MILLICORES
    return Share(millicores // (1000 * gpus), (memory - daemons) // (2**30 * gpus))


def node_share(instance_type: str, *, catalog: Catalog) -> Share:
    """What a node without GPUs leaves to jobs.

    Raises:
        SettingsError: the instance type is not in the catalogue.
    """
    instance = catalog.find_instance(instance_type)
    memory = kubelet.allocatable_memory_bytes(instance.memory_gib, max_pods=kubelet.default_max_pods(instance.vcpus))
    millicores = kubelet.allocatable_millicores(instance.vcpus) - _DAEMONS_MILLICORES
    return Share(millicores // 1000, memory - _DAEMONS_MIB * 2**20 >> 30)


def cpu_share(cpus: int) -> Share:
    """CPU and memory of a rank without a GPU: 3 of the 4 GiB per core that the head nodes' families have, and 1 GiB for Ray."""
    return Share(cpus, 3 * cpus + 1)

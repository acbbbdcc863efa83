"""Environment of NCCL and of what lies under it, for jobs whose ranks are in more than one pod."""

from __future__ import annotations

from infra.spec.catalog import Catalog
from platform_charts.jobs.placement import Placement

_INTERFACE = "eth0"
"""Name the VPC CNI gives a pod's interface (amazon-vpc-cni-k8s, README); loopback is the only other one."""

_RDMA_FAMILIES = frozenset({"p4d", "p4de", "p5", "p5en", "p6-b200"})
"""Families with GPUDirect RDMA over EFA (EC2 user guide, "Elastic Fabric Adapter", table of RDMA read and write)."""


def network_environment(placement: Placement, *, catalog: Catalog) -> dict[str, str]:
    """Variables by name; none for a job in one pod, which needs no network between its ranks.

    Gloo is told its interface as well: the trainer agrees on stops and sums up metrics through it where there is no GPU.
    """
    if placement.pods == 1:
        return {}
    if placement.group is None:
        return {"GLOO_SOCKET_IFNAME": _INTERFACE}
    family = catalog.find(placement.group.instance_type).family
    return {
        "GLOO_SOCKET_IFNAME": _INTERFACE,
        "NCCL_SOCKET_IFNAME": _INTERFACE,
        "NCCL_DEBUG": "WARN",
        **(_efa_environment(has_rdma=family in _RDMA_FAMILIES) if placement.efa else {}),
    }


def _efa_environment(*, has_rdma: bool) -> dict[str, str]:
    """Libfabric's variables: without FI_PROVIDER it silently takes TCP where EFA is broken; RDMA as EC2's guide says."""
    variables = {"FI_PROVIDER": "efa"}
    return {**variables, "FI_EFA_USE_DEVICE_RDMA": "1"} if has_rdma else variables

"""Environment variables of NCCL, Gloo and libfabric, for jobs whose ranks are in more than one pod."""

from __future__ import annotations

from infra.spec.catalog import Catalog
from platform_charts.jobs.placement import Placement

_INTERFACE = "eth0"
"""Name the VPC CNI gives a pod's interface (amazon-vpc-cni-k8s, README); loopback is the only other one."""


def network_environment(placement: Placement, *, catalog: Catalog) -> dict[str, str]:
    """Variables by name; none for a job in one pod, whose ranks need no network.

    Gloo gets its interface too: without GPUs the trainer reduces metrics and votes to stop through it.
    """
    if placement.most_pods == 1:
        return {}
    if not placement.groups:
        return {"GLOO_SOCKET_IFNAME": _INTERFACE}
    has_rdma = all(catalog.family_of(group.instance_type).gpudirect_rdma for group in placement.groups)
    return {
        "GLOO_SOCKET_IFNAME": _INTERFACE,
        "NCCL_SOCKET_IFNAME": _INTERFACE,
        "NCCL_DEBUG": "WARN",
        **(_efa_environment(has_rdma=has_rdma) if placement.efa else {}),
    }


def _efa_environment(*, has_rdma: bool) -> dict[str, str]:
    """Libfabric's variables: without FI_PROVIDER it silently falls back to TCP where EFA is broken; RDMA as in EC2's guide."""
    variables = {"FI_PROVIDER": "efa"}
    return {**variables, "FI_EFA_USE_DEVICE_RDMA": "1"} if has_rdma else variables

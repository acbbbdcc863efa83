"""Allocatable CPU and memory of an EKS node, after the reserves that nodeadm computes.

Source: awslabs/amazon-eks-ami, nodeadm, kubelet defaults.
"""

from __future__ import annotations

_MIB = 2**20

_UNSEEN_MEMORY = 0.075
"""Share of an instance's memory that is not visible to its operating system (Karpenter, VM_MEMORY_OVERHEAD_PERCENT)."""

_EVICTION_MIB = 100
"""The kubelet's default memory.available threshold."""

_SMALL_VCPUS = 8
_SMALL_MAX_PODS = 58
_LARGE_MAX_PODS = 737


def default_max_pods(vcpus: int) -> int:
    """The maxPods that nodeadm assumes for the reserve if nothing sets it: the maximum over all types of the size.

    nodeadm derives it from network interfaces (amazon-eks-ami, eni-max-pods.txt: up to 8 vCPUs, and above).
    """
    return _SMALL_MAX_PODS if vcpus <= _SMALL_VCPUS else _LARGE_MAX_PODS


def allocatable_millicores(vcpus: int) -> int:
    """Allocatable CPU in millicores.

    The kubelet reserves 6 % of the first core, 1 % of the second, 0.5 % of the next two and 0.25 % of each further core.
    """
    reserved = sum((60, 10, 5, 5)[:vcpus]) + 2.5 * max(0, vcpus - 4)
    return vcpus * 1000 - int(reserved)


def allocatable_memory_bytes(memory_gib: int, *, max_pods: int, huge_pages_bytes: int = 0) -> int:
    """Allocatable memory: the kubelet reserves 255 MiB, 11 MiB per pod, and 100 MiB as eviction threshold.

    Args:
        memory_gib: the instance's memory.
        max_pods: the kubelet's maxPods.
        huge_pages_bytes: memory reserved as huge pages, a separate resource.
    """
    seen = int(memory_gib * 2**30 * (1 - _UNSEEN_MEMORY))
    return seen - (255 + 11 * max_pods + _EVICTION_MIB) * _MIB - huge_pages_bytes

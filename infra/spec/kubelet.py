"""What the kubelet of an EKS node leaves to pods: the reserves that nodeadm computes.

Source: awslabs/amazon-eks-ami, nodeadm, kubelet defaults.
"""

from __future__ import annotations

_MIB = 2**20

_UNSEEN_MEMORY = 0.075
"""Part of an instance's memory that its operating system never sees (Karpenter, VM_MEMORY_OVERHEAD_PERCENT)."""

_EVICTION_MIB = 100
"""The kubelet's default memory.available threshold."""

_SMALL_VCPUS = 8
_SMALL_MAX_PODS = 58
_LARGE_MAX_PODS = 737


def default_max_pods(vcpus: int) -> int:
    """Pods by which nodeadm computes the reserve where nothing sets them: the most that any type of the size may have.

    nodeadm counts network interfaces (amazon-eks-ami, eni-max-pods.txt: up to 8 vCPUs, and above).
    """
    return _SMALL_MAX_PODS if vcpus <= _SMALL_VCPUS else _LARGE_MAX_PODS


def allocatable_millicores(vcpus: int) -> int:
    """Thousandths of a core that pods get.

    The kubelet keeps 6 % of the first core, 1 % of the second, 0.5 % of the next two and 0.25 % of every other.
    """
    reserved = sum((60, 10, 5, 5)[:vcpus]) + 2.5 * max(0, vcpus - 4)
    return vcpus * 1000 - int(reserved)


def allocatable_memory_bytes(memory_gib: int, *, max_pods: int, huge_pages_bytes: int = 0) -> int:
    """Memory that pods get: the kubelet keeps 255 MiB, 11 MiB a pod, and 100 MiB before it evicts.

    Args:
        memory_gib: the instance's memory.
        max_pods: the kubelet's largest number of pods.
        huge_pages_bytes: memory set aside as huge pages, a resource of its own.
    """
    seen = int(memory_gib * 2**30 * (1 - _UNSEEN_MEMORY))
    return seen - (255 + 11 * max_pods + _EVICTION_MIB) * _MIB - huge_pages_bytes

"""Memory of Prometheus for the nodes of an environment, from what `make bench-fleet` measured (docs/BENCHMARKING.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from infra.spec import kubelet
from infra.spec.capacity import LaunchRequest
from infra.spec.catalog import Catalog, InstanceType

_SMALLEST_GIB = 4
"""For the series that do not depend on nodes: those of the API server and of the platform's own pods."""

_DAEMONS_GIB = 1
"""For the DaemonSets of a system node."""

_SERIES_OF_A_NODE = 720
_SERIES_OF_A_VCPU = 13
_SERIES_OF_A_GPU = 40
"""Of node exporter, DCGM exporter, Ray and the trainer, and what rules and dashboards use of kubelet and kube-state-metrics."""

_BYTES_OF_A_SERIES = 4096

_HEADROOM = 2
"""For the other series of kubelet and kube-state-metrics, the compaction every two hours, and queries."""


def prometheus_memory_gib(groups: Iterable[LaunchRequest], catalog: Catalog, *, chosen: int | None) -> int:
    """Memory of Prometheus in GiB.

    Args:
        groups: all node groups, whose largest sizes count; unknown instance types do not.
        catalog: the instance catalogue.
        chosen: the setting; null computes it.
    """
    if chosen is not None:
        return chosen
    series = 0
    for group in groups:
        known = [catalog.instances[name] for name in group.instance_types if name in catalog.instances]
        series += group.max_size * max((series_of_a_node(vcpus=one.vcpus, gpus=one.gpus) for one in known), default=0)
    return memory_gib_for(series)


def series_of_a_node(*, vcpus: int, gpus: int) -> int:
    """Series that a node has in Prometheus, with the runs on it."""
    return _SERIES_OF_A_NODE + _SERIES_OF_A_VCPU * vcpus + _SERIES_OF_A_GPU * gpus


def memory_gib_for(series: int) -> int:
    """Memory in GiB that suffices for so many series of nodes."""
    return max(_SMALLEST_GIB, math.ceil(_HEADROOM * series * _BYTES_OF_A_SERIES / 2**30))


def free_memory_gib(system_node: InstanceType) -> int:
    """Memory in GiB that a system node of this type has for one large pod."""
    pods = kubelet.default_max_pods(system_node.vcpus)
    return kubelet.allocatable_memory_bytes(system_node.memory_gib, max_pods=pods) // 2**30 - _DAEMONS_GIB

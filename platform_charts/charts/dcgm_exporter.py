"""Values of dcgm-exporter: GPU metrics, with counters of our own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from infra.spec.catalog import Catalog
from infra.spec.manifest import Manifest
from infra.spec.settings.nodes import GpuGroup
from platform_charts.charts.image_names import ImageNames
from platform_charts.container_resources import ContainerResources
from platform_charts.placement import gpu_nodes, gpu_tolerations

COUNTERS = Path(__file__).with_name("dcgm-counters.csv")
"""What the exporter exports, in its own format: field, type, help."""

_NODE: Manifest = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}
"""The label by which rules join GPUs with kube-state-metrics; the exporter's own changed from `Hostname` to `hostname`."""

_PROCESSORS = 4
"""Largest number of threads, and the CPU limit. Go's default is one per core, 192 on a p5, each with its own memory."""


def exporter_values(groups: Sequence[GpuGroup], catalog: Catalog, images: ImageNames) -> Manifest:
    """Values of dcgm-exporter; one DaemonSet serves all nodes, so its memory limit is that of the largest.

    SYS_ADMIN stays, the chart's default: the profiling fields, SM and tensor core activity, need it.
    """
    memory = catalog.dcgm_memory_mib(max(catalog.find_instance(group.instance_type).gpus for group in groups))
    return {
        "image": images["dcgm-exporter"].repository_and_tag(),
        "customMetrics": COUNTERS.read_text(encoding="utf-8"),
        "extraEnv": [{"name": "GOMAXPROCS", "value": str(_PROCESSORS)}],
        "affinity": gpu_nodes(),
        "tolerations": gpu_tolerations(),
        "resources": ContainerResources(cpu="100m", memory=f"{memory}Mi", cpu_limit=str(_PROCESSORS)).manifest(),
        # The labels pod and namespace are those of the pod that uses the GPU, not the exporter's.
        # The chart's time-out of 25 s is longer than the interval, for which the Prometheus Operator rejects the monitor.
        "serviceMonitor": {
            "enabled": True,
            "interval": "15s",
            "scrapeTimeout": "10s",
            "honorLabels": True,
            "relabelings": [_NODE],
        },
    }

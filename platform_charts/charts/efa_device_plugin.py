"""Values of aws-efa-k8s-device-plugin."""

from __future__ import annotations

from collections.abc import Iterable

from infra.spec.manifest import Manifest
from infra.spec.settings.nodes import GpuGroup
from platform_charts.charts.image_names import ImageNames
from platform_charts.container_resources import CONTAINERS
from platform_charts.placement import gpu_tolerations


def efa_plugin_values(groups: Iterable[GpuGroup], images: ImageNames) -> Manifest:
    """Values of the chart: it runs on the instance types of the groups that have EFA."""
    types = sorted({group.instance_type for group in groups if group.efa})
    return {
        "image": images["aws-efa-k8s-device-plugin"].repository_and_tag(),
        "supportedInstanceLabels": {"keys": ["node.kubernetes.io/instance-type"], "values": types},
        "nodeSelector": {},
        "tolerations": gpu_tolerations(),
        "resources": CONTAINERS["aws-efa-k8s-device-plugin"].manifest(),
    }

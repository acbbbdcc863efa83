"""Values of the charts that make a GPU node one: NVIDIA's device plugin with feature discovery, and AWS's EFA plugin."""

from __future__ import annotations

from collections.abc import Iterable

import yaml

from infra.spec.manifest import Manifest
from infra.spec.node_labels import GPU_RESOURCE, GPU_TAINT
from infra.spec.settings.nodes import GpuGroup, Sharing
from infra.spec.sharing import WHOLE_GPU, device_plugin_config
from platform_charts.charts.image_names import ImageNames
from platform_charts.placement import SYSTEM_NODES, gpu_nodes, resources, tolerations


def device_plugin_values(groups: Iterable[GpuGroup], images: ImageNames) -> Manifest:
    """Values of nvidia-device-plugin.

    The chart finds GPU nodes by labels of feature discovery, which itself has to find them first; ours have a label from
    the start, so the plugin is on a new node before anything has been discovered there.
    """
    sharings = {device_plugin_config(one): one for one in (Sharing(), *(group.sharing for group in groups))}
    return {
        "image": images["nvidia-device-plugin"].repository_and_tag(),
        "affinity": gpu_nodes(),
        "tolerations": tolerations(),
        "resources": resources(cpu="50m", memory="256Mi"),
        "config": {
            "default": WHOLE_GPU,
            "map": {name: yaml.safe_dump(_plugin_config(sharing)) for name, sharing in sharings.items()},
        },
        "gfd": {"enabled": True},
        "nfd": _feature_discovery_values(images),
    }


def efa_plugin_values(groups: Iterable[GpuGroup], images: ImageNames) -> Manifest:
    """Values of aws-efa-k8s-device-plugin, for the instance types of the groups that have EFA."""
    types = sorted({group.instance_type for group in groups if group.efa})
    return {
        "image": images["aws-efa-k8s-device-plugin"].repository_and_tag(),
        "supportedInstanceLabels": {"keys": ["node.kubernetes.io/instance-type"], "values": types},
        "nodeSelector": {},
        "tolerations": tolerations(),
        "resources": resources(cpu="10m", memory="64Mi"),
    }


def _plugin_config(sharing: Sharing) -> Manifest:
    """The device plugin's own configuration file (k8s-device-plugin, "The configuration file")."""
    config: Manifest = {
        "version": "v1",
        # A node whose driver does not answer shows as a plugin that fails, not as a node without GPUs.
        "flags": {"failOnInitError": True, "migStrategy": "single" if sharing.mig_profile else "none"},
    }
    if sharing.time_slices > 1:
        # Two slices may be of one GPU: who asks for two gets no more than who asks for one, and is told so.
        slices = {"name": GPU_RESOURCE, "replicas": sharing.time_slices}
        config["sharing"] = {"timeSlicing": {"failRequestsGreaterThanOne": True, "resources": [slices]}}
    return config


def _feature_discovery_values(images: ImageNames) -> Manifest:
    """Values of the subchart node-feature-discovery, which turns what GFD finds into node labels."""
    return {
        "image": images["node-feature-discovery"].repository_and_tag(),
        # The hook that takes labels off the nodes would need nodes; the stack takes the nodes.
        "postDeleteCleanup": False,
        "master": {
            "config": {"extraLabelNs": [GPU_TAINT.key.partition("/")[0]]},
            "nodeSelector": SYSTEM_NODES,
            "tolerations": [],
            "affinity": {},
            "resources": resources(cpu="50m", memory="256Mi"),
        },
        "worker": {
            "affinity": gpu_nodes(),
            "tolerations": tolerations(),
            "resources": resources(cpu="10m", memory="128Mi"),
        },
        "gc": {"nodeSelector": SYSTEM_NODES, "resources": resources(cpu="10m", memory="128Mi")},
    }

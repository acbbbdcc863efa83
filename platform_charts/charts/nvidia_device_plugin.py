"""Values of nvidia-device-plugin: NVIDIA's device plugin, with GPU feature discovery and its subchart."""

from __future__ import annotations

from collections.abc import Iterable

from infra.spec.manifest import Manifest
from infra.spec.manifest_yaml import write_document
from infra.spec.node_labels import GPU_RESOURCE, GPU_TAINT
from infra.spec.settings.nodes import GpuGroup, Sharing
from infra.spec.sharing import WHOLE_GPU, device_plugin_config
from platform_charts.charts.image_names import ImageNames
from platform_charts.container_resources import CONTAINERS
from platform_charts.placement import SYSTEM_NODES, gpu_nodes, gpu_tolerations


def device_plugin_values(groups: Iterable[GpuGroup], images: ImageNames) -> Manifest:
    """Values of the chart.

    The chart selects GPU nodes by labels of feature discovery, which first has to run there. Our nodes have a label from
    the start, so the plugin starts on a new node at once.

    GPUs reach pods through CDI: containerd adds them, which nodeadm allows from Kubernetes 1.32 on. The plugin's default,
    an environment variable for NVIDIA's runtime, has no effect in a container without privileges since AL2023 AMIs of
    April 2026 (awslabs/amazon-eks-ami #2706). The plugin itself gets its GPUs that way, so it needs CAP_SYS_ADMIN, by
    which the runtime tells a privileged container.
    """
    sharings = {device_plugin_config(one): one for one in (Sharing(), *(group.sharing for group in groups))}
    return {
        "image": images["nvidia-device-plugin"].repository_and_tag(),
        "deviceListStrategy": "cdi-cri",
        # The host's, where the plugin looks for the driver's libraries that CDI mounts.
        "nvidiaDriverRoot": "/",
        "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}},
        "affinity": gpu_nodes(),
        "tolerations": gpu_tolerations(),
        "resources": CONTAINERS["nvidia-device-plugin"].manifest(),
        "config": {
            "default": WHOLE_GPU,
            "map": {name: write_document(_plugin_config(sharing)) for name, sharing in sharings.items()},
        },
        "gfd": {"enabled": True},
        "nfd": _feature_discovery_values(images),
    }


def _plugin_config(sharing: Sharing) -> Manifest:
    """The device plugin's own configuration file (k8s-device-plugin, "The configuration file").

    Its keys are in the order of the alphabet: another text, though it meant the same, would restart the plugin of every stack.
    """
    config: Manifest = {
        # Where the driver does not answer, the plugin fails visibly instead of offering no GPUs.
        "flags": {"failOnInitError": True, "migStrategy": "single" if sharing.mig_profile else "none"},
    }
    if sharing.time_slices > 1:
        # Two slices may be of the same GPU: a pod that asks for two would get no more than with one, so it is refused.
        slices = {"name": GPU_RESOURCE, "replicas": sharing.time_slices}
        config["sharing"] = {"timeSlicing": {"failRequestsGreaterThanOne": True, "resources": [slices]}}
    config["version"] = "v1"
    return config


def _feature_discovery_values(images: ImageNames) -> Manifest:
    """Values of the subchart node-feature-discovery, which writes the node labels that GPU feature discovery asks for."""
    return {
        "image": images["node-feature-discovery"].repository_and_tag(),
        # The hook that removes the labels needs nodes to run on, and the stack deletes the nodes.
        "postDeleteCleanup": False,
        "master": {
            "config": {"extraLabelNs": [GPU_TAINT.key.partition("/")[0]]},
            "nodeSelector": SYSTEM_NODES,
            "tolerations": [],
            "affinity": {},
            "resources": CONTAINERS["feature-discovery-master"].manifest(),
        },
        "worker": {
            "affinity": gpu_nodes(),
            "tolerations": gpu_tolerations(),
            "resources": CONTAINERS["feature-discovery-worker"].manifest(),
        },
        "gc": {"nodeSelector": SYSTEM_NODES, "resources": CONTAINERS["feature-discovery-gc"].manifest()},
    }

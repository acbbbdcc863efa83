"""GPU sharing between pods: time-slicing by the device plugin, or MIG devices that the node creates."""

from __future__ import annotations

import re

from infra.spec.catalog import Gpu
from infra.spec.settings.nodes import Sharing

_COMPUTE_SLICES = 7
_MEMORY_SLICES = 8
"""A GPU has 7 compute and 8 memory slices (NVIDIA MIG user guide, "Partitioning")."""

DEVICE_PLUGIN_CONFIG_LABEL = "nvidia.com/device-plugin.config"
"""Node label that selects the NVIDIA device plugin's configuration for the node (k8s-device-plugin, README)."""

WHOLE_GPU = "whole"
"""The device plugin's configuration for whole GPUs."""


def device_plugin_config(sharing: Sharing) -> str:
    """Name of the device plugin's configuration for these settings."""
    if sharing.mig_profile is not None:
        return f"mig-{sharing.mig_profile}"
    return WHOLE_GPU if sharing.time_slices == 1 else f"time-slices-{sharing.time_slices}"


def sharing_labels(sharing: Sharing) -> dict[str, str]:
    """Node labels for sharing, which the stack outputs omit; none for whole GPUs, the device plugin's default."""
    config = device_plugin_config(sharing)
    return {} if config == WHOLE_GPU else {DEVICE_PLUGIN_CONFIG_LABEL: config}


def devices_per_gpu(sharing: Sharing, gpu: Gpu) -> int:
    """Number of `nvidia.com/gpu` that the device plugin advertises per GPU, with time slices or MIG slices of one size."""
    if sharing.mig_profile is None:
        return sharing.time_slices
    compute, gigabytes = map(int, re.findall(r"\d+", sharing.mig_profile))
    memory = round(gigabytes * _MEMORY_SLICES * 1024 / gpu.memory_mib)
    return min(_COMPUTE_SLICES // compute, _MEMORY_SLICES // max(memory, 1))


def mig_script(profile: str, *, slices: int) -> str:
    """Shell script that partitions every GPU of a node into MIG slices.

    MIG mode persists across reboots, slices do not: it has to run at every boot, and replaces existing slices.

    Args:
        profile: MIG profile, e.g. 1g.10gb.
        slices: number of slices per GPU.
    """
    return "\n".join(
        (
            "#!/bin/bash",
            "set -eu",
            "nvidia-smi --multi-instance-gpu 1",
            "nvidia-smi mig --destroy-compute-instance || true",
            "nvidia-smi mig --destroy-gpu-instance || true",
            f"nvidia-smi mig --create-gpu-instance {','.join([profile] * slices)} --default-compute-instance",
            "",
        )
    )

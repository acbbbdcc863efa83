"""The device that a rank computes on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import torch

from training.config.schema import ScaleSettings

FAKE_GPUS: Final = "RTP_FAKE_NVIDIA_COM_GPU"
"""Set in a container whose GPUs do not exist, to their names: the sandbox's device plugin assigns such GPUs (docs/SANDBOX.md)."""


def rank_device(scale: ScaleSettings, *, index: int, environment: Mapping[str, str] = os.environ) -> torch.device:
    """The rank's GPU under `scale.gpu`, otherwise the CPU; also the CPU in place of a GPU that does not exist.

    Args:
        scale: of the run.
        index: of the GPU among those that the process can see.
        environment: of the rank's process.
    """
    if scale.gpu and FAKE_GPUS not in environment:
        return torch.device("cuda", index)
    return torch.device("cpu")

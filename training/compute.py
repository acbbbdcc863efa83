"""Memory order and compilation of a model; both change results by rounding only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import torch
from torch import nn

from training.config.schema import ComputeSettings
from training.data.types import SampleSpec
from training.errors import SettingsError
from training.strategies.strategy import Strategy

_IMAGE_DIMENSIONS: Final = 3
"""Channels, height and width."""

KERNELS: Final = "kernels"
"""Folder of a run with the kernels that `torch.compile` has generated, of all ranks and attempts."""

_CACHE_VARIABLE: Final = "TORCHINDUCTOR_CACHE_DIR"


def arranged(module: nn.Module, settings: ComputeSettings, spec: SampleSpec) -> nn.Module:
    """The module with its weights in the memory order of the settings.

    Raises:
        SettingsError: `channels_last` of a model whose samples are not images.
    """
    if not settings.channels_last:
        return module
    if len(spec.shape) != _IMAGE_DIMENSIONS:
        raise SettingsError(
            f"compute.channels_last=true is for images, but the samples have the shape {spec.shape}",
            remedy="set compute.channels_last=false",
        )
    # Convolutions take the order of their weights, whatever that of their inputs.
    return module.to(memory_format=torch.channels_last)


def compile_steps(strategy: Strategy, settings: ComputeSettings, *, run_directory: Path) -> None:
    """Compile the model of training steps as the settings say, and keep the kernels with the run."""
    if settings.compile == "off":
        return
    os.environ[_CACHE_VARIABLE] = str(run_directory / KERNELS)  # torch itself may have set it to a folder of the user
    strategy.compile(settings.compile)

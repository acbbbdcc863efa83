"""Shared code of the image models."""

from __future__ import annotations

from training.data.types import SampleSpec
from training.errors import SettingsError


def channels_of(spec: SampleSpec, *, model: str) -> int:
    """Returns the number of channels of the samples.

    Args:
        spec: shape (channels, height, width).
        model: value of `model.name`, for the error.

    Raises:
        SettingsError: the samples are not images.
    """
    if len(spec.shape) != 3:
        raise SettingsError(
            f"model.name={model} expects images (channels, height, width), but the samples have shape {spec.shape}",
            remedy="set model.name=mlp, or a data.dataset of images",
        )
    return spec.shape[0]

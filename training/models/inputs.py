"""What a model accepts: images, features or tokens."""

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


def refuse_tokens(spec: SampleSpec, *, model: str) -> None:
    """Refuses samples that are not numbers.

    Raises:
        SettingsError: the samples are tokens.
    """
    if spec.vocabulary:
        raise SettingsError(
            f"model.name={model} expects numbers, but the samples are {spec.vocabulary} kinds of tokens",
            remedy="set model.name=transformer, or a data.dataset of images or features",
        )

"""What models of images ask of a dataset."""

from __future__ import annotations

from training.data.types import SampleSpec
from training.errors import SettingsError


def channels_of(spec: SampleSpec, *, model: str) -> int:
    """Returns the channels of the images that `spec` describes.

    Args:
        spec: shape (channels, height, width).
        model: value of `model.name`, for the error.

    Raises:
        SettingsError: the dataset's samples are no images.
    """
    if len(spec.shape) != 3:
        raise SettingsError(
            f"model.name={model} reads images (channels, height, width), the dataset's samples have shape {spec.shape}",
            remedy="set model.name=mlp, or a data.dataset of images",
        )
    return spec.shape[0]

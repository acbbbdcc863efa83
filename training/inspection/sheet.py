"""A picture of some samples of the training split: images with their classes, or inputs as rows of a heat map."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from training.data.order import epoch_order, uniforms
from training.data.types import DataBundle
from training.errors import DataError

_COLUMNS = 8
_SAMPLES = 24
_CANDIDATES = 200
"""Samples that are tried until as many as fit the picture could be read."""


def draw(bundle: DataBundle, file: Path, *, augment: bool) -> None:
    """Writes the picture. Of images every row is followed by one of the same samples as they are augmented.

    Args:
        bundle: the dataset.
        file: PNG file to write; its folder is created.
        augment: show augmented images too.

    Raises:
        DataError: no sample can be read.
    """
    ids = _readable(bundle)
    file.parent.mkdir(parents=True, exist_ok=True)
    are_images = len(bundle.spec.shape) == 3
    figure = _images(bundle, ids, augment=augment) if are_images else _heat_map(bundle, ids)
    figure.suptitle(f"{bundle.name}: {len(ids)} samples of the training split", fontsize=11)
    figure.savefig(file, dpi=110)


def _readable(bundle: DataBundle) -> NDArray[np.int64]:
    """The first samples of a random order that can be read."""
    found: list[int] = []
    for one in epoch_order(seed=0, epoch=0, size=len(bundle.train))[:_CANDIDATES]:
        try:
            bundle.train.read(np.array([one]))
        except (DataError, OSError):
            continue
        found.append(int(one))
        if len(found) == _SAMPLES:
            break
    if not found:
        raise DataError(f"no sample of dataset {bundle.name} can be read", remedy="replace its files")
    return np.array(found)


def _images(bundle: DataBundle, ids: NDArray[np.int64], *, augment: bool) -> Figure:
    versions = [bundle.train.read(ids)]
    if augment and bundle.train.draws:
        drawn = uniforms(seed=0, epoch=0, positions=range(len(ids)), draws=bundle.train.draws)
        versions.append(bundle.train.read(ids, drawn))
    lines = -(-len(ids) // _COLUMNS)
    figure = Figure(figsize=(11, 1.45 * lines * len(versions) + 0.6), layout="constrained")
    axes = figure.subplots(lines * len(versions), _COLUMNS, squeeze=False)
    for one in axes.flat:
        one.axis("off")
    for version, (inputs, targets) in enumerate(versions):
        for place, (image, target) in enumerate(zip(inputs.numpy(), targets, strict=True)):
            axis: Axes = axes[place // _COLUMNS * len(versions) + version, place % _COLUMNS]
            axis.imshow(_picture(image), cmap="gray")
            said = f"class {int(target)}" if target.ndim == 0 else ""
            axis.set_title("augmented" if version else said, fontsize=8, color="grey" if version else "black")
    return figure


def _picture(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """Height, width and colours, in [0, 1], of a normalised image: (channels, height, width); of other than 3 channels the first."""
    low, high = image.min(), image.max()
    scaled: NDArray[np.float32] = (image - low) / max(high - low, 1e-6)
    return scaled.transpose(1, 2, 0) if len(scaled) == 3 else scaled[0]


def _heat_map(bundle: DataBundle, ids: NDArray[np.int64]) -> Figure:
    inputs, targets = bundle.train.read(ids)
    figure = Figure(figsize=(11, 0.25 * len(ids) + 1.6), layout="constrained")
    axis = figure.subplots()
    drawn = axis.imshow(inputs.flatten(1).numpy(), aspect="auto", interpolation="nearest", cmap="viridis")
    axis.set_yticks(range(len(ids)), [_label(target) for target in targets.numpy()], fontsize=8)
    axis.set_xlabel("position" if bundle.spec.vocabulary else "feature")
    axis.set_ylabel("target")
    figure.colorbar(drawn, ax=axis, label="token" if bundle.spec.vocabulary else "value")
    return figure


def _label(target: NDArray[np.generic]) -> str:
    values = [f"{value:g}" for value in np.atleast_1d(target)[:3].tolist()]
    return ", ".join(values) + (" …" if target.size > len(values) else "")

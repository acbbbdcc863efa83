"""Images in memory as raw bytes, augmented and normalised batch by batch.

Raw bytes take a quarter of the memory of float32. Augmentation precedes normalisation, so that padding is black, as in
the usual recipes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class PadAndCrop:
    """Pads with black, takes a random crop of the original size, and optionally mirrors it.

    A margin of 4 with mirroring is the CIFAR-10 augmentation of He et al., arXiv:1512.03385, section 4.2.

    Attributes:
        margin: pixels of padding on each side, and so the largest shift.
        mirrors: mirror left-right with probability 1/2.
    """

    margin: int
    mirrors: bool

    @property
    def draws(self) -> int:
        """Uniforms per image: row, column and, with `mirrors`, one more."""
        return 3 if self.mirrors else 2

    def __call__(self, pixels: Tensor, uniforms: NDArray[np.float64]) -> Tensor:
        """Augments images.

        Args:
            pixels: uint8, shape (n, channels, height, width).
            uniforms: shape (n, draws).

        Returns:
            A new tensor of the same shape and dtype.
        """
        height, width = pixels.shape[-2:]
        corners = torch.from_numpy((uniforms[:, :2] * (2 * self.margin + 1)).astype(np.int64))
        padded = functional.pad(pixels, (self.margin,) * 4)
        # A view of every possible crop, (n, channels, rows, columns, height, width); indexing copies one per image.
        crops = padded.unfold(2, height, 1).unfold(3, width, 1)
        cropped = crops[torch.arange(len(pixels)), :, corners[:, 0], corners[:, 1]]
        if not self.mirrors:
            return cropped
        is_mirrored = torch.from_numpy(uniforms[:, 2] < 0.5)
        return torch.where(is_mirrored[:, None, None, None], cropped.flip(-1), cropped)


class PixelSplit:
    """A `Split` over images in memory."""

    def __init__(
        self,
        *,
        pixels: Tensor,
        labels: Tensor,
        rows: NDArray[np.int64],
        mean: Sequence[float],
        std: Sequence[float],
        augmentation: PadAndCrop | None = None,
    ) -> None:
        """Selects the rows of this split.

        Args:
            pixels: all images, uint8, shape (n, channels, height, width); splits share them without a copy.
            labels: class of each image, int64, shape (n,).
            rows: rows of `pixels` in this split; a sample's id is its index in `rows`.
            mean: mean of each channel, in units of `pixels`.
            std: standard deviation of each channel, in units of `pixels`.
            augmentation: applied when `read` gets uniforms.
        """
        self._pixels = pixels
        self._labels = labels
        self._rows = torch.from_numpy(rows)
        self._mean = torch.tensor(mean, dtype=torch.float32)[:, None, None]
        self._std = torch.tensor(std, dtype=torch.float32)[:, None, None]
        self._augmentation = augmentation

    @property
    def draws(self) -> int:
        """Uniforms per sample; see `Split.draws`."""
        return self._augmentation.draws if self._augmentation else 0

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._rows)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Reads the samples with these ids; see `Split.read`."""
        rows = self._rows[torch.from_numpy(ids)]
        pixels = self._pixels[rows]
        if uniforms is not None:
            assert self._augmentation is not None, "uniforms for a split whose draws are 0"
            pixels = self._augmentation(pixels, uniforms)
        return pixels.float().sub_(self._mean).div_(self._std), self._labels[rows]

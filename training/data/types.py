"""What a dataset is to the training loop: three splits that read samples by id, and a fingerprint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class SampleSpec:
    """What a model must fit to.

    Attributes:
        shape: shape of one sample's float32 input, e.g. (1, 8, 8) for a grey image of 8 x 8 or (784,) for features.
        classes: number of classes; labels are 0 ... classes - 1.
    """

    shape: tuple[int, ...]
    classes: int


class Split(Protocol):
    """Samples that can be read in any order, by several processes at once.

    Augmentation belongs to the split because it happens where it is cheapest: on the raw bytes of an image in memory,
    or in the resize that decoding a file needs anyway. It has no randomness of its own: it is a pure function of the
    uniforms it is given.
    """

    @property
    def draws(self) -> int:
        """Uniforms that augmenting one sample takes; 0 for a split without augmentation."""

    def __len__(self) -> int:
        """Number of samples; their ids are 0 ... len - 1."""

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Reads the samples with these ids.

        Args:
            ids: ids of the samples, shape (n,); an id may occur more than once.
            uniforms: numbers in [0, 1), shape (n, draws), that the augmentation is a function of; None does not
                augment.

        Returns:
            Inputs, normalised, float32 of shape (n, *spec.shape), and labels, int64 of shape (n,).

        Raises:
            DataError: a sample's file is missing or unreadable.
        """


@dataclass(frozen=True, kw_only=True)
class DataBundle:
    """A dataset, ready to be read.

    Attributes:
        name: name of the dataset, for reports.
        spec: what a model must fit to.
        train: samples that weights are fitted to.
        validation: samples that choices (best checkpoint, hyperparameters) are made by.
        test: samples that only the final figure is taken from.
        fingerprint: sha256, in hex, over what determines the samples and their split; equal fingerprints mean equal
            samples under equal ids. A run is resumed only with the fingerprint it began with.
    """

    name: str
    spec: SampleSpec
    train: Split
    validation: Split
    test: Split
    fingerprint: str


@dataclass(frozen=True, eq=False)
class Batch:
    """What one forward pass of one rank takes.

    The first `count` rows are the batch. Rows behind them are padding, other real samples, there because batch norm
    needs at least two rows: they are left out of loss and metrics.

    Attributes:
        inputs: float32, shape (rows, *spec.shape).
        labels: int64, shape (rows,).
        ids: ids of the first `count` rows within their split, shape (count,).
        count: rows that count, 0 <= count <= rows; 0 where a short last step has no sample left for this rank.
    """

    inputs: Tensor
    labels: Tensor
    ids: NDArray[np.int64]
    count: int

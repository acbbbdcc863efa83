"""Rows of Parquet files as splits: of numbers, and of images."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.images import DRAWS, ImageDecoder
from training.data.parquet_files import RowGroups


class ParquetSplit:
    """A `Split` of rows of numbers: features, or tokens."""

    draws = 0

    def __init__(
        self, groups: RowGroups[NDArray[np.generic]], rows: NDArray[np.int64], targets: NDArray[np.generic] | None
    ) -> None:
        """Reads nothing yet.

        Args:
            groups: the rows, each an array of numbers; float32, or tokens.
            rows: numbers of the split's rows.
            targets: of all rows, shape (n, ...); None: the target of a token is the one that follows, in a row one longer.
        """
        self._groups = groups
        self._rows = rows
        self._targets = targets

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Rows and their targets; see `Split.read`."""
        assert uniforms is None, "uniforms for a split whose draws are 0"
        rows = self._rows[ids]
        parts = [(positions, values[chosen]) for positions, values, chosen in self._groups.take(rows)]
        order = np.argsort(np.concatenate([positions for positions, _ in parts]))
        inputs = torch.from_numpy(np.concatenate([values for _, values in parts])[order])
        if inputs.dtype != torch.float32:
            inputs = inputs.long()
        if self._targets is None:
            return inputs[:, :-1], inputs[:, 1:]
        return inputs, torch.from_numpy(self._targets[rows])


class ParquetImageSplit:
    """A `Split` of rows with an encoded image."""

    def __init__(
        self,
        groups: RowGroups[pa.Array],
        rows: NDArray[np.int64],
        targets: NDArray[np.generic],
        *,
        decoder: ImageDecoder,
        augments: bool,
    ) -> None:
        """Reads nothing yet.

        Args:
            groups: the rows, each the bytes of an image's file.
            rows: numbers of the split's rows.
            targets: of all rows, shape (n, ...).
            decoder: makes the samples.
            augments: random crop and mirror when `read` gets uniforms.
        """
        self._groups = groups
        self._rows = rows
        self._targets = targets
        self._decoder = decoder
        self.draws = DRAWS if augments else 0

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Decoded images and their targets; see `Split.read`."""
        rows = self._rows[ids]
        images = (
            (int(position), io.BytesIO(values[int(number)].as_buffer()), self._groups.place(int(rows[position])))
            for positions, values, chosen in self._groups.take(rows)
            for position, number in zip(positions, chosen, strict=True)
        )
        inputs = self._decoder.samples(images, uniforms=uniforms, count=len(ids))
        return inputs, torch.from_numpy(self._targets[rows])

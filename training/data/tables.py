"""Tables in memory: rows of numbers and their targets."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class TableSplit:
    """A `Split` of rows in memory."""

    draws = 0

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        """Stores the rows.

        Args:
            inputs: float32, shape (n, features).
            targets: shape (n, ...).
        """
        self._inputs = inputs
        self._targets = targets

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._inputs)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Rows and targets; see `Split.read`."""
        assert uniforms is None, "uniforms for a split whose draws are 0"
        rows = torch.from_numpy(ids)
        return self._inputs[rows], self._targets[rows]

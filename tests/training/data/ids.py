"""A split that shows which samples were read."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class IdSplit:
    """A split whose inputs and targets are the ids of its samples."""

    draws = 0

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """The ids, as inputs and as targets."""
        assert uniforms is None
        return torch.from_numpy(ids).float()[:, None], torch.from_numpy(ids)

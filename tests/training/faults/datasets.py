"""Datasets that fail at a given batch, and otherwise equal `digits`."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from training.config.schema import DataSettings
from training.data.registry import load_dataset
from training.data.types import DataBundle, Split


class Hanging:
    """A split whose second batch never comes, unless the file `trace` exists, which it creates."""

    def __init__(self, split: Split, trace: Path) -> None:
        self._split = split
        self._trace = trace
        self._reads = 0
        self.draws = split.draws

    def __len__(self) -> int:
        return len(self._split)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Hangs in the second batch."""
        self._reads += len(ids) > 16
        if self._reads == 2 and not self._trace.exists():
            self._trace.touch()
            time.sleep(3600)
        return self._split.read(ids, uniforms)


def hanging(settings: DataSettings, trace: str) -> DataBundle:
    """The factory that the settings name."""
    bundle = load_dataset(settings.model_copy(update={"dataset": "digits", "options": {}}))
    return replace(bundle, train=Hanging(bundle.train, Path(trace)))

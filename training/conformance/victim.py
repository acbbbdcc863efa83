"""A dataset that kills the rank which reads it, once: `data.dataset: training.conformance.victim:digits`.

The rank dies by SIGKILL in the middle of training, as it does when the kernel needs its memory or its node is lost, and nothing else
is told. The run that comes after it is the trainer's own.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from training.checkpoint.store import committed_steps
from training.config.schema import DataSettings
from training.data.digits import load_digits
from training.data.options import DigitsOptions
from training.data.types import DataBundle, Split
from training.rundir import RunDirectory

KILLED_FILE: Final = "killed.json"
"""File in the run's folder that says which rank was killed; it is not killed again."""


def digits(settings: DataSettings, run: str, rank: int) -> DataBundle:
    """The digits, whose training split kills a rank once the run has a checkpoint.

    Args:
        settings: of the dataset.
        run: folder of the run.
        rank: the rank to kill; the others read the digits and nothing more.
    """
    bundle = load_digits(settings, DigitsOptions())
    return replace(bundle, train=_FatalSplit(bundle.train, RunDirectory(Path(run)), rank))


def killed_rank(run: RunDirectory) -> int | None:
    """The rank that was killed; None if none was."""
    try:
        return int(json.loads((run.path / KILLED_FILE).read_text(encoding="utf-8"))["rank"])
    except FileNotFoundError:
        return None


class _FatalSplit:
    """A split that kills the process which reads it after a checkpoint."""

    def __init__(self, split: Split, run: RunDirectory, rank: int) -> None:
        self._split, self._run, self._rank = split, run, rank

    @property
    def draws(self) -> int:
        """Those of the split."""
        return self._split.draws

    def __len__(self) -> int:
        return len(self._split)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """The samples of the split, unless this is where the process ends."""
        if self._is_victim() and committed_steps(self._run.checkpoints):
            self._die()
        return self._split.read(ids, uniforms)

    def _is_victim(self) -> bool:
        rank = dist.get_rank() if dist.is_initialized() else 0
        return rank == self._rank and not (self._run.path / KILLED_FILE).exists()

    def _die(self) -> None:
        with (self._run.path / KILLED_FILE).open("x", encoding="utf-8") as file:
            json.dump({"rank": self._rank}, file)
            file.flush()
            os.fsync(file.fileno())
        os.kill(os.getpid(), signal.SIGKILL)

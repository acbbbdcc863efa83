"""Reads samples of a split, whose own random numbers are those of a place in an epoch, and sees that they can be drawn again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.testing import assert_close

from training.data.reading import Check, read_samples
from training.data.types import DataBundle, Split
from training.errors import SettingsError
from training.seeding import Generator, generators_of, runs_user_code, seeded_reading

_ATTEMPTS = 10
_SAMPLES = 16

_REMEDY = (
    "draw from the uniforms that read() gets, from the generators of torch, NumPy or Python, or from one that an attribute of the split "
    "keeps, and keep nothing that changes from read to read"
)


class SeededReader:
    """Reads samples; generators are looked for in the process that reads, where a split may make them as it reads."""

    def __init__(self, split: Split, *, check: Check | None = None) -> None:
        """Args: `check` is of the targets."""
        self._split = split
        self._check = check
        self._sizes: dict[int, int] = {}
        self._own: dict[str, Generator] | None = None
        self._may_make = False

    def __call__(
        self,
        ids: NDArray[np.int64],
        drawn: NDArray[np.float64] | None = None,
        *,
        position: int,
        seed: int = 0,
        epoch: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """The inputs and targets of samples; see `read_samples` and `seeded_reading`.

        Reads once more if the split has made a generator meanwhile, which was not seeded.

        Raises:
            DataError: a sample cannot be read.
            SettingsError: a target is none of the objective, or each read makes generators that are kept.
        """
        if self._own is None:
            self._own = generators_of(self._split, sizes=self._sizes)
            self._may_make = runs_user_code(self._split)
        for _ in range(_ATTEMPTS):
            with seeded_reading(seed, epoch, position, own=self._own):
                samples = read_samples(self._split, ids, drawn, check=self._check)
            if not self._may_make:
                return samples
            known = len(self._own)
            self._own |= generators_of(self._split, sizes=self._sizes)
            if len(self._own) == known:
                return samples
        raise SettingsError(
            f"read() of the same samples has made and kept new generators of random numbers {_ATTEMPTS} times",
            remedy="make each once, in __init__ or in the first read",
        )


def check_own_draws(bundle: DataBundle, *, is_augmented: bool) -> None:
    """Read the first and the last samples of the training split twice, from the same random numbers: a resumed run reads them again.

    Args:
        bundle: a dataset of the user's own.
        is_augmented: as it is read for training.

    Raises:
        SettingsError: they are not the same.
        DataError: a sample cannot be read.
    """
    split = bundle.train
    reader, count = SeededReader(split), min(_SAMPLES, len(split))
    drawn = np.full((count, split.draws), 0.5) if is_augmented and split.draws else None
    for ids in (np.arange(count), np.arange(len(split) - count, len(split))):
        first, second = (reader(ids, drawn, position=0) for _ in range(2))
        for what, one, other in zip(("inputs", "targets"), first, second, strict=True):
            try:
                assert_close(other, one, rtol=0, atol=0, equal_nan=True)
            except AssertionError:
                raise SettingsError(
                    f"train split of dataset {bundle.name}: the {what} of samples {ids[0]} to {ids[-1]} are others when they are read "
                    "again from the same random numbers, so a resumed run would differ",
                    remedy=_REMEDY,
                ) from None

"""Mixup (Zhang et al., arXiv:1710.09412): training samples mixed with others, as a split around a split.

Which samples are mixed, and by which share, is a function of the uniforms, like any augmentation: the same samples are mixed at every
world size, and after a resume. So partners come from the whole split and not, as often, from the same batch.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from training.data.sample_order import sample_order
from training.data.types import Split

_OWN_DRAWS = 2
"""Uniforms that mixing needs per sample: one chooses the partner, one the share."""


class MixedSplit:
    """A `Split` whose augmented samples are mixtures of two, with class probabilities as targets."""

    def __init__(self, split: Split, *, alpha: float, classes: int) -> None:
        """Wraps a split.

        Args:
            split: samples whose targets are classes, int64.
            alpha: shares are drawn from Beta(alpha, alpha).
            classes: number of classes.
        """
        self._split = split
        self._alpha = alpha
        self._classes = classes

    @property
    def draws(self) -> int:
        """Uniforms per sample: those of the two samples, and two for mixing them."""
        return 2 * self._split.draws + _OWN_DRAWS

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._split)

    def epoch_order(self, *, seed: int, epoch: int) -> NDArray[np.int64]:
        """The order of the samples, without their partners, which are random in the split; see `OrderedSplit`."""
        return sample_order(self._split, seed=seed, epoch=epoch)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Reads and mixes the samples with these ids; see `Split.read`. Without uniforms nothing is mixed.

        Returns:
            Inputs, float32 of shape (n, *spec.shape), and probabilities, float32 of shape (n, classes).
        """
        if uniforms is None:
            inputs, classes = self._split.read(ids)
            return inputs, one_hot(classes, self._classes).float()
        choice, augmentation = uniforms[:, :_OWN_DRAWS], uniforms[:, _OWN_DRAWS:]
        partners = (choice[:, 0] * len(self._split)).astype(np.int64)
        share = torch.from_numpy(self._shares(choice[:, 1]))
        first, second = np.split(augmentation, 2, axis=1)
        augments = self._split.draws > 0
        inputs, classes = self._split.read(ids, first if augments else None)
        others, other_classes = self._split.read(partners, second if augments else None)
        of_inputs = share.view(-1, *[1] * (inputs.ndim - 1))
        mixed = inputs * of_inputs + others * (1 - of_inputs)
        of_targets = share[:, None]
        targets = one_hot(classes, self._classes) * of_targets + one_hot(other_classes, self._classes) * (
            1 - of_targets
        )
        return mixed, targets

    def _shares(self, uniforms: NDArray[np.float64]) -> NDArray[np.float32]:
        """A share from Beta(alpha, alpha) for each uniform, whose bits seed the generator of its draw."""
        seeds = (uniforms * 2.0**53).astype(np.uint64)
        drawn = [np.random.Generator(np.random.Philox(key=seed)).beta(self._alpha, self._alpha) for seed in seeds]
        return np.array(drawn, dtype=np.float32)

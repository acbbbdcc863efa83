"""`synthetic`: generated samples of any number and size, with learnable classes.

A sample is its class's pattern plus noise, scaled to unit variance. All samples slice their noise from one long sequence
of normal numbers, each at its own offset. Reading costs a copy and an addition, so benchmarks on synthetic data do not
measure random number generation, and memory hardly grows with the number of samples.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from training.config.schema import DataSettings
from training.data.fingerprint import fingerprint
from training.data.options import SyntheticOptions
from training.data.order import Stream, philox
from training.data.types import DataBundle, SampleSpec

_NOISE_OFFSETS = 2**20
"""Number of offsets into the noise sequence."""

_OFFSET_STRIDE = 0x9E3779B1
"""Distance between the offsets of consecutive samples, modulo `_NOISE_OFFSETS`. It is odd, so 2**20 samples have distinct
offsets; 2**32 divided by the golden ratio, as in Fibonacci hashing, spreads the offsets of nearby samples."""

_PATTERN_SIDE = 4
"""Side of a class pattern of images before upsampling: coarse, like the features of natural images."""


class SyntheticSplit:
    """A `Split` that generates samples when they are read."""

    draws = 0

    def __init__(
        self, *, shape: tuple[int, ...], patterns: Tensor, noise: Tensor, labels: Tensor, offsets: Tensor
    ) -> None:
        """Stores the parts of which `read` makes samples.

        Args:
            shape: shape of one sample.
            patterns: pattern of each class, float32, shape (classes, features) or (classes, channels, side, side).
            noise: noise sequence, float32, one dimension.
            labels: class of each sample, int64, shape (n,).
            offsets: offset of each sample's noise in `noise`, int64, shape (n,).
        """
        self._shape = shape
        self._patterns = patterns
        self._noise = noise.unfold(0, math.prod(shape), 1)
        self._labels = labels
        self._offsets = offsets

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._labels)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Generates the samples with these ids; see `Split.read`."""
        assert uniforms is None, "uniforms for a split whose draws are 0"
        rows = torch.from_numpy(ids)
        labels = self._labels[rows]
        patterns = self._patterns[labels]
        if len(self._shape) > 1:
            patterns = functional.interpolate(patterns, size=self._shape[1:], mode="nearest")
        return self._noise[self._offsets[rows]].view(len(ids), *self._shape).add_(patterns), labels


def load_synthetic(_settings: DataSettings, options: SyntheticOptions) -> DataBundle:
    """Returns three disjoint splits that are a pure function of the options."""
    is_image = options.kind == "images"
    shape = (options.channels, options.height, options.width) if is_image else (options.features,)
    patterns, noise = _patterns_and_noise(options, shape)
    sizes = [options.samples, options.evaluation_samples, options.evaluation_samples]
    numbers = torch.arange(sum(sizes))
    labels_by_split = torch.split(numbers % options.classes, sizes)
    offsets_by_split = torch.split(numbers * _OFFSET_STRIDE % _NOISE_OFFSETS, sizes)

    def split(index: int) -> SyntheticSplit:
        return SyntheticSplit(
            shape=shape,
            patterns=torch.from_numpy(patterns),
            noise=torch.from_numpy(noise),
            labels=labels_by_split[index],
            offsets=offsets_by_split[index],
        )

    return DataBundle(
        name="synthetic",
        spec=SampleSpec(shape=shape, classes=options.classes),
        train=split(0),
        validation=split(1),
        test=split(2),
        fingerprint=fingerprint(
            {"dataset": "synthetic", **options.model_dump()}, {"patterns": patterns, "noise": noise}
        ),
    )


def _patterns_and_noise(
    options: SyntheticOptions, shape: tuple[int, ...]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns the class patterns and the noise sequence, scaled so that their sum has unit variance."""
    pattern_shape = (shape[0], _PATTERN_SIDE, _PATTERN_SIDE) if len(shape) > 1 else shape
    generator = np.random.Generator(philox(seed=options.seed, epoch=0, stream=Stream.SYNTHETIC))
    patterns = generator.standard_normal((options.classes, *pattern_shape), dtype=np.float32)
    noise = generator.standard_normal(_NOISE_OFFSETS + math.prod(shape), dtype=np.float32)
    scale = 1 / math.hypot(1, options.noise)
    return patterns * np.float32(scale), noise * np.float32(scale * options.noise)

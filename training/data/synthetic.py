"""`synthetic`: generated samples of any number and size, with learnable targets.

A sample is a sum of patterns plus noise, scaled to unit variance: the pattern of its class; those of its labels; or all patterns, each
times one of its values. All samples slice their noise from one long sequence
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

NOISE_OFFSETS = 2**20
"""Number of offsets into the noise sequence."""

_OFFSET_STRIDE = 0x9E3779B1
"""Distance between the offsets of consecutive samples, modulo `NOISE_OFFSETS`. It is odd, so 2**20 samples have distinct
offsets; 2**32 divided by the golden ratio, as in Fibonacci hashing, spreads the offsets of nearby samples."""

_PATTERN_SIDE = 4
"""Side of a class pattern of images before upsampling: coarse, like the features of natural images."""


class SyntheticSplit:
    """A `Split` that generates samples when they are read."""

    draws = 0

    def __init__(
        self, *, shape: tuple[int, ...], patterns: Tensor, noise: Tensor, targets: Tensor, offsets: Tensor
    ) -> None:
        """Stores the parts of which `read` makes samples.

        Args:
            shape: shape of one sample.
            patterns: pattern of each class, label or value, float32, shape (classes, features) or (classes, channels, side, side).
            noise: noise sequence, float32, one dimension.
            targets: class of each sample, int64, shape (n,), or its labels or values, float32, shape (n, classes).
            offsets: offset of each sample's noise in `noise`, int64, shape (n,).
        """
        self._shape = shape
        self._patterns = patterns
        self._noise = noise.unfold(0, math.prod(shape), 1)
        self._targets = targets
        self._offsets = offsets

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._targets)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Generates the samples with these ids; see `Split.read`."""
        assert uniforms is None, "uniforms for a split whose draws are 0"
        rows = torch.from_numpy(ids)
        targets = self._targets[rows]
        is_mixture = targets.is_floating_point()
        patterns = torch.tensordot(targets, self._patterns, dims=1) if is_mixture else self._patterns[targets]
        if len(self._shape) > 1:
            patterns = functional.interpolate(patterns, size=self._shape[1:], mode="nearest")
        return self._noise[self._offsets[rows]].view(len(ids), *self._shape).add_(patterns), targets


def load_synthetic(_settings: DataSettings, options: SyntheticOptions) -> DataBundle:
    """Returns three disjoint splits that are a pure function of the options."""
    is_image = options.kind == "images"
    shape = (options.channels, options.height, options.width) if is_image else (options.features,)
    patterns, noise = _patterns_and_noise(options, shape)
    sizes = [options.samples, options.evaluation_samples, options.evaluation_samples]
    numbers = torch.arange(sum(sizes))
    targets_by_split = torch.split(_targets(options, numbers), sizes)
    offsets_by_split = torch.split(offsets_of(numbers), sizes)

    def split(index: int) -> SyntheticSplit:
        return SyntheticSplit(
            shape=shape,
            patterns=torch.from_numpy(patterns),
            noise=torch.from_numpy(noise),
            targets=targets_by_split[index],
            offsets=offsets_by_split[index],
        )

    return DataBundle(
        name="synthetic",
        spec=SampleSpec(shape=shape, outputs=options.classes),
        train=split(0),
        validation=split(1),
        test=split(2),
        fingerprint=fingerprint(
            {"dataset": "synthetic", **options.model_dump()}, {"patterns": patterns, "noise": noise}
        ),
    )


def offsets_of(numbers: Tensor) -> Tensor:
    """The offsets into a sequence of `NOISE_OFFSETS` starts of the samples with these numbers."""
    return numbers * _OFFSET_STRIDE % NOISE_OFFSETS


def _targets(options: SyntheticOptions, numbers: Tensor) -> Tensor:
    """The targets of samples with these numbers: as many as there are samples, in the format of `SyntheticSplit`."""
    if options.targets == "classes":
        return numbers % options.classes
    generator = np.random.Generator(philox(seed=options.seed, epoch=1, stream=Stream.SYNTHETIC))
    values = generator.standard_normal((len(numbers), options.classes), dtype=np.float32)
    return torch.from_numpy(values if options.targets == "values" else (values > 0).astype(np.float32))


def _patterns_and_noise(
    options: SyntheticOptions, shape: tuple[int, ...]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns the class patterns and the noise sequence, scaled so that their sum has unit variance."""
    pattern_shape = (shape[0], _PATTERN_SIDE, _PATTERN_SIDE) if len(shape) > 1 else shape
    generator = np.random.Generator(philox(seed=options.seed, epoch=0, stream=Stream.SYNTHETIC))
    patterns = generator.standard_normal((options.classes, *pattern_shape), dtype=np.float32)
    noise = generator.standard_normal(NOISE_OFFSETS + math.prod(shape), dtype=np.float32)
    scale = 1 / math.hypot(1, options.noise)
    return patterns * np.float32(scale), noise * np.float32(scale * options.noise)

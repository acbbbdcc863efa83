"""`synthetic`: samples made on the spot, in any number and size, with classes that can be learnt.

A sample is its class's pattern plus noise, scaled to unit variance. The noise of all samples is cut out of one long
sequence of normal numbers, each sample at its own place: reading costs a copy and an addition, so that a benchmark on
synthetic data measures training and not the making of random numbers, and memory hardly grows with the number of
samples.
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

_NOISE_PLACES = 2**20
"""Places in the noise sequence at which a sample's noise may begin."""

_PLACE_STRIDE = 0x9E3779B1
"""Samples in a row begin this far apart, modulo the places. It is odd, so that no place comes twice in 2**20 samples;
2**32 divided by the golden ratio, as in Fibonacci hashing, keeps the places of near samples far apart."""

_PATTERN_SIDE = 4
"""Side of an image class's pattern before it is enlarged: coarse, as what tells natural images apart is."""


class SyntheticSplit:
    """A `Split` over samples that exist only while they are read."""

    draws = 0

    def __init__(
        self, *, shape: tuple[int, ...], patterns: Tensor, noise: Tensor, labels: Tensor, places: Tensor
    ) -> None:
        """Describes the samples.

        Args:
            shape: shape of one sample.
            patterns: pattern of each class, float32, shape (classes, features) or (classes, channels, side, side).
            noise: sequence that noise is cut out of, float32, one dimension.
            labels: class of each sample, int64, shape (n,).
            places: where in `noise` each sample's noise begins, int64, shape (n,).
        """
        self._shape = shape
        self._patterns = patterns
        self._noise = noise.unfold(0, math.prod(shape), 1)
        self._labels = labels
        self._places = places

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._labels)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Makes samples by id; see `Split.read`."""
        assert uniforms is None, "uniforms for a split whose draws are 0"
        rows = torch.from_numpy(ids)
        labels = self._labels[rows]
        patterns = self._patterns[labels]
        if len(self._shape) > 1:
            patterns = functional.interpolate(patterns, size=self._shape[1:], mode="nearest")
        return self._noise[self._places[rows]].view(len(ids), *self._shape).add_(patterns), labels


def load(_settings: DataSettings, options: SyntheticOptions) -> DataBundle:
    """Returns samples that are a pure function of the options; every split has samples of its own."""
    is_image = options.kind == "images"
    shape = (options.channels, options.height, options.width) if is_image else (options.features,)
    patterns, noise = _patterns_and_noise(options, shape)
    sizes = [options.samples, options.evaluation_samples, options.evaluation_samples]
    numbers = torch.arange(sum(sizes))
    labels_by_split = torch.split(numbers % options.classes, sizes)
    places_by_split = torch.split(numbers * _PLACE_STRIDE % _NOISE_PLACES, sizes)

    def split(index: int) -> SyntheticSplit:
        return SyntheticSplit(
            shape=shape,
            patterns=torch.from_numpy(patterns),
            noise=torch.from_numpy(noise),
            labels=labels_by_split[index],
            places=places_by_split[index],
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
    """Returns the classes' patterns and the noise sequence, scaled so that their sum has unit variance."""
    pattern_shape = (shape[0], _PATTERN_SIDE, _PATTERN_SIDE) if len(shape) > 1 else shape
    generator = np.random.Generator(philox(seed=options.seed, epoch=0, stream=Stream.SYNTHETIC))
    patterns = generator.standard_normal((options.classes, *pattern_shape), dtype=np.float32)
    noise = generator.standard_normal(_NOISE_PLACES + math.prod(shape), dtype=np.float32)
    scale = 1 / math.hypot(1, options.noise)
    return patterns * np.float32(scale), noise * np.float32(scale * options.noise)

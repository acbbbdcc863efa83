"""`synthetic_text`: generated texts of tokens, each with a class.

Every class has keywords of its own. A token of a text is one of its class's keywords with the probability `keywords`, and any token
otherwise. As in `synthetic`, all texts are cut out of long sequences, each at its own offset: reading costs a copy.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.config.schema import DataSettings
from training.data.fingerprint import fingerprint
from training.data.options import SyntheticTextOptions
from training.data.order import Stream, philox
from training.data.synthetic import NOISE_OFFSETS, offsets_of
from training.data.types import DataBundle, SampleSpec


class SyntheticTextSplit:
    """A `Split` that generates texts when they are read."""

    draws = 0

    def __init__(
        self, *, length: int, any_token: Tensor, keyword: Tensor, is_keyword: Tensor, numbers: Tensor, classes: int
    ) -> None:
        """Stores the parts of which `read` makes texts.

        Args:
            length: tokens of a text.
            any_token: sequence of tokens, int64, one dimension.
            keyword: sequence of keywords of each class, int64, shape (classes, as many).
            is_keyword: where a text has a keyword, bool, as many.
            numbers: number of each text in the dataset, int64, shape (n,).
            classes: number of classes.
        """
        self._any_token = any_token.unfold(0, length, 1)
        self._keyword = keyword.unfold(1, length, 1)
        self._is_keyword = is_keyword.unfold(0, length, 1)
        self._offsets = offsets_of(numbers)
        self._targets = numbers % classes

    def __len__(self) -> int:
        """Number of texts."""
        return len(self._targets)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Tokens, int64 of shape (n, length), and classes, int64 of shape (n,); see `Split.read`."""
        assert uniforms is None, "uniforms for a split whose draws are 0"
        rows = torch.from_numpy(ids)
        targets, offsets = self._targets[rows], self._offsets[rows]
        keywords = self._keyword[targets, offsets]
        return torch.where(self._is_keyword[offsets], keywords, self._any_token[offsets]), targets


def load_synthetic_text(_settings: DataSettings, options: SyntheticTextOptions) -> DataBundle:
    """Returns three disjoint splits that are a pure function of the options."""
    generator = np.random.Generator(philox(seed=options.seed, epoch=0, stream=Stream.SYNTHETIC))
    size = NOISE_OFFSETS + options.length
    any_token = generator.integers(options.vocabulary, size=size, dtype=np.int64)
    chosen = generator.permutation(options.vocabulary)[: options.classes * options.words_per_class]
    words = chosen.reshape(options.classes, options.words_per_class)
    keyword = words[:, generator.integers(options.words_per_class, size=size)]
    is_keyword = generator.random(size) < options.keywords
    sizes = [options.samples, options.evaluation_samples, options.evaluation_samples]
    splits = [
        SyntheticTextSplit(
            length=options.length,
            any_token=torch.from_numpy(any_token),
            keyword=torch.from_numpy(keyword),
            is_keyword=torch.from_numpy(is_keyword),
            numbers=numbers,
            classes=options.classes,
        )
        for numbers in torch.split(torch.arange(sum(sizes)), sizes)
    ]
    train, validation, test = splits
    return DataBundle(
        name="synthetic_text",
        spec=SampleSpec(shape=(options.length,), outputs=options.classes, vocabulary=options.vocabulary),
        train=train,
        validation=validation,
        test=test,
        fingerprint=fingerprint(
            {"dataset": "synthetic_text", **options.model_dump()},
            {"any_token": any_token, "keyword": keyword, "is_keyword": is_keyword},
        ),
    )

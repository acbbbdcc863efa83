"""Text for language models, as bytes: your own files, or Python's language reference, which every Python ships.

The bytes are one long sequence, cut into samples of equal length. A sample's targets are its bytes shifted by one: what follows each.
Validation and test are the end of the sequence, so no sentence is in two splits.
"""

from __future__ import annotations

from pydoc_data.topics import topics

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.config.schema import DataSettings
from training.data.files import locate_text_files
from training.data.fingerprint import fingerprint
from training.data.options import TextOptions
from training.data.types import DataBundle, SampleSpec
from training.errors import DataError

TOKENS = 256
"""Size of the vocabulary: every byte."""

TEST_FRACTION = 0.1


class ByteSplit:
    """A `Split` of consecutive samples of a sequence of bytes."""

    draws = 0

    def __init__(self, tokens: Tensor, *, length: int) -> None:
        """Cuts the sequence into samples.

        Args:
            tokens: uint8, one dimension.
            length: tokens of one sample.
        """
        self._count = max(0, (len(tokens) - 1) // length)
        # Each row has the sample's tokens and the one that follows them, and shares that one with the next row.
        self._windows = tokens.unfold(0, length + 1, length) if self._count else tokens[:0]

    def __len__(self) -> int:
        """Number of samples; the last tokens may be in none."""
        return self._count

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Tokens, int64 of shape (n, length), and the token that follows each, of the same shape; see `Split.read`."""
        assert uniforms is None, "uniforms for a split whose draws are 0"
        rows = self._windows[torch.from_numpy(ids)].long()
        return rows[:, :-1], rows[:, 1:]


def load_python_reference(settings: DataSettings, options: TextOptions) -> DataBundle:
    """Loads the topics of Python's language reference, about 700 kB of English, which `help("topics")` shows.

    Other releases of Python have another text, and the dataset another fingerprint.
    """
    text = "\n\n".join(topics.values()).encode()
    return _bundle("python_reference", text, settings, options)


def load_text_files(settings: DataSettings, options: TextOptions) -> DataBundle:
    """Loads the `.txt` files of `data.path` and its folders, in the order of their paths, separated by a zero byte.

    Raises:
        DataError: there are none, or they are shorter than one sample.
    """
    text = b"\0".join(path.read_bytes() for path in locate_text_files(settings.folder))
    return _bundle("text_files", text, settings, options)


def _bundle(name: str, text: bytes, settings: DataSettings, options: TextOptions) -> DataBundle:
    tokens = np.frombuffer(text, dtype=np.uint8)
    test = int(len(tokens) * (1 - TEST_FRACTION))
    validation = int(test * (1 - settings.validation_fraction))
    parts = np.split(tokens, [validation, test])
    splits = [ByteSplit(torch.from_numpy(part.copy()), length=options.length) for part in parts]
    if not all(map(len, splits)):
        raise DataError(
            f"dataset {name} has {len(tokens)} bytes, too few for samples of data.options.length={options.length} in every "
            f"split at data.validation_fraction={settings.validation_fraction}",
            remedy="add text, or shorten data.options.length",
        )
    train, held_out, final = splits
    return DataBundle(
        name=name,
        spec=SampleSpec(shape=(options.length,), outputs=TOKENS, vocabulary=TOKENS, is_sequence=True),
        train=train,
        validation=held_out,
        test=final,
        fingerprint=fingerprint(
            {
                "dataset": name,
                "length": options.length,
                "test": TEST_FRACTION,
                "validation": settings.validation_fraction,
            },
            {"tokens": tokens},
        ),
    )

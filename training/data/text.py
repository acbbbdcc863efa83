"""Text for language models: your own files, or Python's language reference, which every Python ships.

The tokens, which are bytes or those of a learned vocabulary, are one long sequence, cut into samples of equal length. A sample's
targets are its tokens shifted by one: what follows each. Validation and test are the end of the text, so no sentence is in two splits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.config.schema import DataSettings, OptionValue
from training.data.files import locate_text_files
from training.data.fingerprint import fingerprint
from training.data.options import TextOptions
from training.data.tokenizer import as_file, encode, learn, of_bytes
from training.data.types import DataBundle, SampleSpec
from training.errors import DataError

TOKENS = 256
"""Size of the vocabulary of bytes."""

TEST_FRACTION = 0.1

_SEPARATOR = b"\0"
"""Between two texts; a byte that no text has."""


class TokenSplit:
    """A `Split` of consecutive samples of a sequence of tokens."""

    draws = 0

    def __init__(self, tokens: Tensor, *, length: int) -> None:
        """Cuts the sequence into samples.

        Args:
            tokens: integers, one dimension.
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
    """Loads the `.txt` files of `data.path` and its folders, in the order of their paths, with a separator between two of them.

    Raises:
        DataError: there are none, they are shorter than one sample, or with a learned vocabulary not UTF-8.
    """
    files = locate_text_files(settings.folder)
    texts = [path.read_bytes() for path in files]
    if options.tokenizer == "bpe":
        _refuse_other_encodings(files, texts)
    return _bundle("text_files", _SEPARATOR.join(texts), settings, options)


def _refuse_other_encodings(files: Sequence[Path], texts: Sequence[bytes]) -> None:
    for file, text in zip(files, texts, strict=True):
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{file} is not UTF-8: byte {text[error.start]:#04x} at {error.start}",
                remedy="convert it to UTF-8, or set data.options.tokenizer=bytes",
            ) from error


@dataclass(frozen=True, kw_only=True)
class _Tokens:
    """The tokens of the three splits.

    Attributes:
        splits: one dimension each.
        vocabulary: number of different tokens.
        learned: the file of a learned vocabulary, see `DataBundle.files`.
    """

    splits: Sequence[NDArray[np.generic]]
    vocabulary: int
    learned: Mapping[str, bytes] = field(default_factory=dict)


def _bundle(name: str, text: bytes, settings: DataSettings, options: TextOptions) -> DataBundle:
    content = np.frombuffer(text, dtype=np.uint8)
    tokens = (_bytes if options.tokenizer == "bytes" else _learned)(content, settings.validation_fraction, options)
    splits = [TokenSplit(torch.from_numpy(part), length=options.length) for part in tokens.splits]
    if not all(map(len, splits)):
        raise DataError(
            f"dataset {name} has {sum(map(len, tokens.splits))} tokens, {len(text)} bytes: too few for samples of "
            f"data.options.length={options.length} in every split at data.validation_fraction={settings.validation_fraction}",
            remedy="add text, or shorten data.options.length",
        )
    description: dict[str, OptionValue] = {
        "dataset": name,
        "length": options.length,
        "test": TEST_FRACTION,
        "validation": settings.validation_fraction,
    }
    train, held_out, final = splits
    return DataBundle(
        name=name,
        spec=SampleSpec(
            shape=(options.length,), outputs=tokens.vocabulary, vocabulary=tokens.vocabulary, is_sequence=True
        ),
        train=train,
        validation=held_out,
        test=final,
        fingerprint=fingerprint(
            description,
            {"tokens": content, **{file: np.frombuffer(data, np.uint8) for file, data in tokens.learned.items()}},
        ),
        files=tokens.learned or as_file(of_bytes()),
    )


def _cuts(size: int, validation_fraction: float) -> list[int]:
    """Where validation and test begin in a text of `size` bytes."""
    test = int(size * (1 - TEST_FRACTION))
    return [int(test * (1 - validation_fraction)), test]


def _bytes(content: NDArray[np.uint8], validation_fraction: float, _options: TextOptions) -> _Tokens:
    parts = np.split(content, _cuts(len(content), validation_fraction))
    return _Tokens(splits=[part.copy() for part in parts], vocabulary=TOKENS)


def _learned(content: NDArray[np.uint8], validation_fraction: float, options: TextOptions) -> _Tokens:
    """Tokens of a vocabulary that is learned from the training split, so that nothing of the other ones is known of before."""
    # Not within a character, whose further bytes are 10xxxxxx (RFC 3629).
    starts = np.flatnonzero(content & 0xC0 != 0x80)
    cuts = np.append(starts, len(content))[np.searchsorted(starts, _cuts(len(content), validation_fraction))]
    parts = [part.tobytes().decode().split(_SEPARATOR.decode()) for part in np.split(content, cuts)]
    tokenizer = learn(parts[0], vocabulary=options.vocabulary)
    kind = np.int16 if options.vocabulary <= np.iinfo(np.int16).max else np.int32
    return _Tokens(
        splits=[encode(tokenizer, part).astype(kind) for part in parts],
        vocabulary=tokenizer.get_vocab_size(),
        learned=as_file(tokenizer),
    )

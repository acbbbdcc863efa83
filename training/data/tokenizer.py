"""Byte-pair encoding of text: a vocabulary is learned from the training split, and kept with the run and its model.

Sennrich, Haddow and Birch, "Neural machine translation of rare words with subword units", 2016 (arXiv:1508.07909), over bytes as in
GPT-2 (Radford et al., 2019): every text has tokens, and the tokens of a text give back exactly that text.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from training.data.types import SampleSpec
from training.errors import DataError

TOKENIZER_FILE = "tokenizer.json"
"""Name of the vocabulary in the folders of the run and of the model; `tokenizers.Tokenizer.from_file` reads it."""

SEPARATOR = "<|endoftext|>"
"""The token, of id 0, between two texts. Where a text has these characters, they are encoded as characters."""

_PIECE = 2**18
"""Characters that one thread encodes, which needs some 100 bytes for each."""

_TOGETHER = 32
"""Pieces that are encoded in one call, by a thread for each CPU."""

# Without it, the library warns in every loader process, which is forked after its threads were used, but does not use them.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


def of_bytes() -> Tokenizer:
    """A vocabulary whose tokens are the 256 bytes, each of the ID that is its value."""
    # The tables of GPT-2: a printable byte is its own character, the others are those from 256 on, in the order of the bytes.
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = {byte: 256 + place for place, byte in enumerate(sorted(set(range(256)) - printable))}
    tokenizer = Tokenizer(BPE(vocab={chr(others.get(byte, byte)): byte for byte in range(256)}, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = ByteLevelDecoder()
    return tokenizer


def as_file(tokenizer: Tokenizer) -> dict[str, bytes]:
    """The file that is kept with the run and its model (`DataBundle.files`)."""
    return {TOKENIZER_FILE: tokenizer.to_str(pretty=True).encode()}


def read_stored(folder: Path, spec: SampleSpec) -> dict[str, bytes]:
    """The vocabulary that is stored beside samples of tokens, as `as_file` returns it; empty if there is none.

    Args:
        folder: the dataset's folder.
        spec: the samples.

    Raises:
        DataError: the file is damaged, has more tokens than the samples, or does not say how a text to classify is padded.
    """
    file = folder / TOKENIZER_FILE
    if not file.is_file():
        return {}
    content = file.read_bytes()
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except ValueError as error:
        raise DataError(
            f"{file} is not a vocabulary of the library tokenizers: {error}",
            remedy="write it with tokenizers.Tokenizer.save, or delete it",
        ) from error
    if tokenizer.get_vocab_size() > spec.vocabulary:
        raise DataError(
            f"{file} has {tokenizer.get_vocab_size()} tokens, more than data.options.vocabulary={spec.vocabulary}",
            remedy=f"set data.options.vocabulary={tokenizer.get_vocab_size()}, or store the vocabulary that made these tokens",
        )
    if not spec.is_sequence and tokenizer.padding is None:
        raise DataError(
            f"{file} does not say how a text of fewer than {spec.shape[0]} tokens is padded",
            remedy="call tokenizer.enable_padding(pad_id=…) as for these rows before tokenizer.save, or delete the file",
        )
    return {TOKENIZER_FILE: content}


def learn(texts: Sequence[str], *, vocabulary: int) -> Tokenizer:
    """Learns a vocabulary: the separator, the 256 bytes, and merges of the most frequent pairs, as many as are left.

    The same texts give the same vocabulary, in any process and on any number of cores.

    Args:
        texts: the texts to learn from.
        vocabulary: number of tokens; short texts give fewer.
    """
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[SEPARATOR],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((piece for text in texts for piece in _pieces(text)), trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> NDArray[np.int32]:
    """Returns the tokens of texts, with the separator between two of them, in one dimension."""
    tokenizer.encode_special_tokens = True  # as characters
    separator = np.array([tokenizer.token_to_id(SEPARATOR)], dtype=np.int32)
    parts = [separator[:0]]
    for number, text in enumerate(texts):
        if number:
            parts.append(separator)
        pieces = _pieces(text)
        while together := list(islice(pieces, _TOGETHER)):
            parts.extend(np.array(piece.ids, dtype=np.int32) for piece in tokenizer.encode_batch_fast(together))
    return np.concatenate(parts)


def _pieces(text: str) -> Iterator[str]:
    """Cuts a text before a line, so that no word is cut."""
    start = 0
    while start < len(text):
        cut = text.rfind("\n", start + 1, start + _PIECE) if len(text) - start > _PIECE else -1
        end = cut if cut > 0 else min(len(text), start + _PIECE)
        yield text[start:end]
        start = end

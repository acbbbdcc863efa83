"""Writes both published versions of CIFAR-10, with generated images in the real number and size."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.data.files import CIFAR10_BINARY, CIFAR10_LAYOUTS, CIFAR10_PYTHON

Rows = NDArray[np.uint8]


def generate_rows(index: int) -> tuple[Rows, list[int]]:
    """Returns the pixels, (10000, 3072), and labels of one of the six files.

    The first pixel is the file's index. The others depend on row, colour plane and column, to reveal a wrong axis order.
    """
    row, column = np.arange(10_000, dtype=np.int64)[:, None], np.arange(3072, dtype=np.int64)[None, :]
    pixels = ((row * 3 + column // 1024 * 70 + column % 32) % 251).astype(np.uint8)
    pixels[:, 0] = index
    return pixels, [(number + index) % 10 for number in range(10_000)]


def encode_binary(pixels: Rows, labels: list[int]) -> bytes:
    """Encodes rows of one label byte and 3072 pixel bytes."""
    return np.hstack([np.array(labels, dtype=np.uint8)[:, None], pixels]).tobytes()


def encode_python(pixels: Rows, labels: list[int]) -> bytes:
    """Encodes a Python 2 pickle: protocol 2 with text as byte strings, which Python 3 cannot write."""
    shape = _integer(pixels.shape[0]) + _integer(pixels.shape[1]) + b"\x86"
    dtype = b"cnumpy\ndtype\n(" + _text(b"u1") + b"K\x00K\x01tR"
    dtype += b"(K\x03" + _text(b"|") + b"NNN" + _integer(-1) + _integer(-1) + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85" + _text(b"b") + b"tR"
    array += b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", pixels.size) + pixels.tobytes() + b"tb"
    label_list = b"](" + b"".join(_integer(label) for label in labels) + b"e"
    items = [
        _text(b"batch_label"),
        _text(b"training batch 1 of 5"),
        _text(b"data"),
        array,
        _text(b"labels"),
        label_list,
    ]
    return b"\x80\x02}(" + b"".join(items) + b"u."


def _text(value: bytes) -> bytes:
    return b"U" + bytes([len(value)]) + value


def _integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def write_both_versions(root: Path) -> None:
    """Writes the two folders of six files each under `root`."""
    for layout in CIFAR10_LAYOUTS:
        (root / layout.folder).mkdir()
    for index in range(6):
        pixels, labels = generate_rows(index)
        (root / CIFAR10_BINARY.folder / CIFAR10_BINARY.files[index]).write_bytes(encode_binary(pixels, labels))
        (root / CIFAR10_PYTHON.folder / CIFAR10_PYTHON.files[index]).write_bytes(encode_python(pixels, labels))


def copy_except(folder: Path, target: Path, *, name: str, content: bytes | None) -> Path:
    """Hard-links the files of a folder into another, except for `name`, which gets `content`; None omits it."""
    target.mkdir()
    for file in folder.iterdir():
        if file.name != name:
            os.link(file, target / file.name)
    if content is not None:
        (target / name).write_bytes(content)
    return target

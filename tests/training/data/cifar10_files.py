"""Writes files in the two published forms of CIFAR-10, with made-up images of the real number and size."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.data.files import CIFAR10_BINARY, CIFAR10_LAYOUTS, CIFAR10_PYTHON

Rows = NDArray[np.uint8]


def made_up_rows(place: int) -> tuple[Rows, list[int]]:
    """Returns pixels, (10000, 3072), and labels of the file at this place of the six.

    The first pixel is the place; the others depend on row, colour plane and column, so that a wrong order of axes
    shows.
    """
    row, column = np.arange(10_000, dtype=np.int64)[:, None], np.arange(3072, dtype=np.int64)[None, :]
    pixels = ((row * 3 + column // 1024 * 70 + column % 32) % 251).astype(np.uint8)
    pixels[:, 0] = place
    return pixels, [(number + place) % 10 for number in range(10_000)]


def binary_content(pixels: Rows, labels: list[int]) -> bytes:
    """Returns rows of one label byte and 3072 pixel bytes."""
    return np.hstack([np.array(labels, dtype=np.uint8)[:, None], pixels]).tobytes()


def python_content(pixels: Rows, labels: list[int]) -> bytes:
    """Returns the pickle that Python 2 wrote: protocol 2 with text as byte strings, which Python 3 cannot write."""
    shape = _integer(pixels.shape[0]) + _integer(pixels.shape[1]) + b"\x86"
    byte_type = b"cnumpy\ndtype\n(" + _text(b"u1") + b"K\x00K\x01tR"
    byte_type += b"(K\x03" + _text(b"|") + b"NNN" + _integer(-1) + _integer(-1) + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85" + _text(b"b") + b"tR"
    array += b"(K\x01" + shape + byte_type + b"\x89T" + struct.pack("<i", pixels.size) + pixels.tobytes() + b"tb"
    listed = b"](" + b"".join(_integer(label) for label in labels) + b"e"
    items = [_text(b"batch_label"), _text(b"training batch 1 of 5"), _text(b"data"), array, _text(b"labels"), listed]
    return b"\x80\x02}(" + b"".join(items) + b"u."


def _text(value: bytes) -> bytes:
    return b"U" + bytes([len(value)]) + value


def _integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def write_both(root: Path) -> None:
    """Writes the two folders of six files each under `root`."""
    for layout in CIFAR10_LAYOUTS:
        (root / layout.folder).mkdir()
    for place in range(6):
        pixels, labels = made_up_rows(place)
        (root / CIFAR10_BINARY.folder / CIFAR10_BINARY.files[place]).write_bytes(binary_content(pixels, labels))
        (root / CIFAR10_PYTHON.folder / CIFAR10_PYTHON.files[place]).write_bytes(python_content(pixels, labels))


def with_other_file(folder: Path, target: Path, *, name: str, content: bytes | None) -> Path:
    """Makes a folder of links to the files of another, one of them replaced, or left out for None."""
    target.mkdir()
    for file in folder.iterdir():
        if file.name != name:
            os.link(file, target / file.name)
    if content is not None:
        (target / name).write_bytes(content)
    return target

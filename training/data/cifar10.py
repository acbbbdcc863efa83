"""`cifar10`: CIFAR-10 from its published files.

Source: Krizhevsky, "Learning multiple layers of features from tiny images", 2009. 60,000 colour images of 32 x 32 in 10
classes; the last 10,000 are the published test set. The Python version holds pickles. Unpickling can call any function,
so the unpickler resolves only the three names that a pickled array needs.
"""

from __future__ import annotations

import io
import pickle
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from numpy.typing import NDArray

from training.config.schema import DataSettings
from training.data.files import (
    CIFAR10_BINARY,
    CIFAR10_LAYOUTS,
    CIFAR10_PIXELS,
    CIFAR10_ROWS,
    Cifar10Layout,
    locate_cifar10,
)
from training.data.fingerprint import fingerprint
from training.data.holdout import hold_out
from training.data.options import Cifar10Options
from training.data.pixels import PadAndCrop, PixelSplit
from training.data.types import DataBundle, SampleSpec
from training.errors import DataError

CLASSES = 10

_MEAN = tuple(255 * value for value in (0.4914, 0.4822, 0.4465))
"""Mean of each channel over the pixels of the 50,000 training images, in bytes."""

_STD = tuple(255 * value for value in (0.2470, 0.2435, 0.2616))
"""Standard deviation over the same pixels. The common (0.2023, 0.1994, 0.2010) averages the deviations of each image."""

_REMEDY = "download the archive again from https://www.cs.toronto.edu/~kriz/cifar.html and extract it"

_Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]


def load_cifar10(settings: DataSettings, _options: Cifar10Options) -> DataBundle:
    """Loads CIFAR-10 and holds out `validation_fraction` of each class of the training images for validation.

    Raises:
        DataError: a file is missing, truncated or in an unexpected format.
    """
    pixels, labels = _read_all(settings.folder)
    train_size = len(labels) - CIFAR10_ROWS
    train, validation = hold_out(labels[:train_size], settings.validation_fraction)
    shared_pixels, shared_labels = torch.from_numpy(pixels), torch.from_numpy(labels)

    def split(rows: NDArray[np.int64], augmentation: PadAndCrop | None = None) -> PixelSplit:
        return PixelSplit(
            pixels=shared_pixels, labels=shared_labels, rows=rows, mean=_MEAN, std=_STD, augmentation=augmentation
        )

    return DataBundle(
        name="cifar10",
        spec=SampleSpec(shape=(3, 32, 32), outputs=CLASSES),
        train=split(train, PadAndCrop(margin=4, mirrors=True)),
        validation=split(validation),
        test=split(np.arange(train_size, len(labels))),
        fingerprint=fingerprint(
            {"dataset": "cifar10", "validation": settings.validation_fraction}, {"pixels": pixels, "labels": labels}
        ),
    )


def _read_all(path: Path) -> _Batch:
    """Returns images, uint8 (60000, 3, 32, 32), and labels, (60000,): the training files in order, then the test file."""
    location, layout = locate_cifar10(path)
    files = _folder_files(location, layout) if layout else _archive_files(location)
    pixels = np.empty((6 * CIFAR10_ROWS, 3, 32, 32), dtype=np.uint8)
    labels = np.empty(6 * CIFAR10_ROWS, dtype=np.int64)
    for index, name, content in files:
        rows = slice(index * CIFAR10_ROWS, (index + 1) * CIFAR10_ROWS)
        decode = _decode_binary if name.endswith(".bin") else _decode_python
        pixels[rows], labels[rows] = decode(f"{location}/{name}", content)
    return pixels, labels


def _folder_files(folder: Path, layout: Cifar10Layout) -> Iterator[tuple[int, str, bytes]]:
    for index, name in enumerate(layout.files):
        yield index, name, (folder / name).read_bytes()


def _archive_files(archive: Path) -> Iterator[tuple[int, str, bytes]]:
    """Yields index, name and content of the six files in the archive's order, because gzip only reads forwards."""
    missing = {layout: set(layout.files) for layout in CIFAR10_LAYOUTS}
    try:
        with tarfile.open(archive, "r:*") as members:
            for member in members:
                name = PurePosixPath(member.name).name
                layout = next((layout for layout in CIFAR10_LAYOUTS if name in missing[layout]), None)
                if layout is None or (content := members.extractfile(member)) is None:
                    continue
                missing[layout].discard(name)
                yield layout.files.index(name), name, content.read()
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"cannot read archive {archive}: {error}", remedy=_REMEDY) from error
    if all(missing.values()):
        closest = min(CIFAR10_LAYOUTS, key=lambda layout: len(missing[layout]))
        raise DataError(f"{archive} does not contain {', '.join(sorted(missing[closest]))}", remedy=_REMEDY)


def _decode_binary(file: str, content: bytes) -> _Batch:
    """Decodes rows of one label byte and 3072 pixel bytes."""
    if len(content) != CIFAR10_BINARY.min_bytes:
        raise DataError(f"{file} has {len(content)} bytes, expected {CIFAR10_BINARY.min_bytes}", remedy=_REMEDY)
    rows = np.frombuffer(content, dtype=np.uint8).reshape(CIFAR10_ROWS, 1 + CIFAR10_PIXELS)
    return rows[:, 1:].reshape(-1, 3, 32, 32), _validate_labels(file, rows[:, 0].astype(np.int64))


def _decode_python(file: str, content: bytes) -> _Batch:
    """Decodes a Python 2 pickle of {"data": uint8 (10000, 3072), "labels": list of 10000, ...}."""
    try:
        table = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle may raise anything
        raise DataError(f"cannot unpickle {file}: {error}", remedy=_REMEDY) from error
    data = table.get(b"data") if isinstance(table, dict) else None
    labels = table.get(b"labels") if isinstance(table, dict) else None
    if not (isinstance(data, np.ndarray) and data.shape == (CIFAR10_ROWS, CIFAR10_PIXELS) and data.dtype == np.uint8):
        raise DataError(f"{file} has no uint8 array 'data' of shape ({CIFAR10_ROWS}, {CIFAR10_PIXELS})", remedy=_REMEDY)
    if not (isinstance(labels, list) and len(labels) == CIFAR10_ROWS and all(type(label) is int for label in labels)):
        raise DataError(f"{file} has no list 'labels' of {CIFAR10_ROWS} integers", remedy=_REMEDY)
    return data.reshape(-1, 3, 32, 32), _validate_labels(file, np.array(labels))


def _validate_labels(file: str, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    invalid = np.flatnonzero((labels < 0) | (labels >= CLASSES))
    if len(invalid):
        raise DataError(
            f"{file}: row {invalid[0]} has label {labels[invalid[0]]}, expected 0 <= label < {CLASSES}", remedy=_REMEDY
        )
    return labels


class _ArrayUnpickler(pickle.Unpickler):
    """Resolves only the NumPy 1 names that a pickled array refers to."""

    _ALLOWED = {  # noqa: RUF012 - never changed
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    }

    def find_class(self, module_name: str, global_name: str, /) -> object:
        """Returns the object with this name.

        Raises:
            UnpicklingError: a pickled array does not need the name.
        """
        try:
            return self._ALLOWED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module_name}.{global_name} is not allowed in a pickled array") from None

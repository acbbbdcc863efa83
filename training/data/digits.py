"""`digits`: the handwritten digits that ship with scikit-learn, so that a first run downloads nothing.

1797 grey images of 8 x 8 pixels with values 0 ... 16, 10 classes: the test set of the UCI set "Optical recognition of
handwritten digits" (Alpaydin and Kaynak, 1998).
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from training.config.schema import DataSettings
from training.data.fingerprint import fingerprint
from training.data.holdout import hold_out
from training.data.options import DigitsOptions
from training.data.pixels import PadAndCrop, PixelSplit
from training.data.types import DataBundle, SampleSpec

TEST_FRACTION = 0.2

_MEAN = (4.8842,)
"""Mean of the pixels over all 1797 images."""

_STD = (6.0168,)
"""Standard deviation of the pixels over all 1797 images."""


def load_digits(settings: DataSettings, options: DigitsOptions) -> DataBundle:
    """Loads the digits with stratified training, validation and test splits.

    A fifth of each class is the test split; `validation_fraction` of the rest is the validation split.
    """
    images, labels = read_table()
    rest, test = hold_out(labels, TEST_FRACTION)
    train, validation = hold_out(labels[rest], settings.validation_fraction)
    pixels, classes = torch.from_numpy(images), torch.from_numpy(labels)

    def split(rows: NDArray[np.int64], augmentation: PadAndCrop | None = None) -> PixelSplit:
        return PixelSplit(pixels=pixels, labels=classes, rows=rows, mean=_MEAN, std=_STD, augmentation=augmentation)

    return DataBundle(
        name="digits",
        spec=SampleSpec(shape=(1, 8, 8), outputs=10),
        train=split(rest[train], PadAndCrop(margin=options.shift, mirrors=False)),
        validation=split(rest[validation]),
        test=split(test),
        fingerprint=fingerprint(
            {"dataset": "digits", "test": TEST_FRACTION, "validation": settings.validation_fraction},
            {"images": images, "labels": labels},
        ),
    )


def read_table() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns images, uint8 of shape (1797, 1, 8, 8), and labels, int64 of shape (1797,).

    Reads the file behind `sklearn.datasets.load_digits` without importing scikit-learn: the import takes a second on
    every rank, a hundred times as long as the read.
    """
    table = np.loadtxt(scikit_learn_data() / "digits.csv.gz", delimiter=",")
    return table[:, :-1].astype(np.uint8).reshape(-1, 1, 8, 8), table[:, -1].astype(np.int64)


def scikit_learn_data() -> Path:
    """The folder of the datasets that scikit-learn ships, found without importing it."""
    package = find_spec("sklearn")
    assert package is not None, "scikit-learn is a dependency of this project"
    assert package.origin is not None, "scikit-learn is a regular package"
    return Path(package.origin).parent / "datasets" / "data"

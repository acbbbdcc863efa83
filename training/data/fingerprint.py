"""The fingerprint of a dataset: a sha256 over everything that determines its samples and their ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from training.config.schema import OptionValue
from training.data.options import Orientation


def fingerprint(description: Mapping[str, OptionValue], arrays: Mapping[str, NDArray[np.generic]]) -> str:
    """Returns the sha256, in hex, of a description and of arrays with their names, dtypes and shapes.

    Args:
        description: dataset, options and split parameters.
        arrays: source data of the samples.
    """
    digest = hashlib.sha256(json.dumps(dict(description), sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.view(np.uint8).data)
    return digest.hexdigest()


def image_fingerprints(stored: str, orientation: Orientation) -> tuple[str, dict[str, str]]:
    """The fingerprint of images with their orientation, and that of earlier releases, see `DataBundle.earlier`.

    Args:
        stored: fingerprint of the images as they are stored, without an orientation.
        orientation: as they are read.
    """
    if orientation == "stored":
        return stored, {}
    upright = hashlib.sha256(json.dumps([stored, orientation]).encode()).hexdigest()
    return upright, {stored: "data.options.orientation=stored"}

"""The dataset: 569 tumours, which ship with scikit-learn."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from training.config.schema import DataSettings
from training.data.fingerprint import fingerprint
from training.data.holdout import hold_out
from training.data.tables import TableSplit
from training.data.types import DataBundle, SampleSpec


def tumours(settings: DataSettings, *, test_fraction: float = 0.2) -> DataBundle:
    """Loads 30 measurements of each tumour, and 1 if it is malignant, else 0.

    Args:
        settings: the section `data` of the settings.
        test_fraction: fraction of all samples in the test split. This and what follows is set by `data.options`.
    """
    inputs, is_benign = load_breast_cancer(return_X_y=True)
    is_malignant = 1 - is_benign
    rest, test = hold_out(is_malignant, test_fraction)
    kept, held = hold_out(is_malignant[rest], settings.validation_fraction)
    train, validation = rest[kept], rest[held]
    standard = (inputs - inputs[train].mean(axis=0)) / inputs[train].std(axis=0)

    def split(rows: NDArray[np.int64]) -> TableSplit:
        return TableSplit(torch.tensor(standard[rows]).float(), torch.tensor(is_malignant[rows, None]).float())

    return DataBundle(
        name="tumours",
        spec=SampleSpec(shape=(inputs.shape[1],), outputs=1),
        train=split(train),
        validation=split(validation),
        test=split(test),
        # What determines the samples and their order: a run resumes on the same ones only.
        fingerprint=fingerprint(
            {"test": test_fraction, "validation": settings.validation_fraction},
            {"inputs": inputs, "targets": is_malignant},
        ),
    )

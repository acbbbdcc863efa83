"""`diabetes`: a regression dataset that ships with scikit-learn, so that an example of regression downloads nothing.

442 patients with 10 measurements (age, sex, body mass index, blood pressure, six blood serum values) and the progression of diabetes one
year later (Efron, Hastie, Johnstone and Tibshirani, 2004, "Least Angle Regression").
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from training.config.schema import DataSettings
from training.data.digits import TEST_FRACTION, scikit_learn_data
from training.data.fingerprint import fingerprint
from training.data.holdout import hold_out
from training.data.options import DiabetesOptions
from training.data.tables import TableSplit
from training.data.types import DataBundle, SampleSpec


def load_diabetes(settings: DataSettings, _options: DiabetesOptions) -> DataBundle:
    """Loads the table. Measurements and target are standardized by mean and deviation of the training split."""
    inputs, targets = read_table(scikit_learn_data())
    same = np.zeros(len(inputs), dtype=np.int64)
    rest, test = hold_out(same, TEST_FRACTION)
    train, validation = hold_out(same[rest], settings.validation_fraction)
    fitted = rest[train]
    columns = np.concatenate([inputs, targets], axis=1)
    standard = ((columns - columns[fitted].mean(axis=0)) / columns[fitted].std(axis=0)).astype(np.float32)

    def split(rows: NDArray[np.int64]) -> TableSplit:
        chosen = torch.from_numpy(standard[rows])
        return TableSplit(chosen[:, :-1].contiguous(), chosen[:, -1:].contiguous())

    return DataBundle(
        name="diabetes",
        spec=SampleSpec(shape=(inputs.shape[1],), outputs=1),
        train=split(fitted),
        validation=split(rest[validation]),
        test=split(test),
        fingerprint=fingerprint(
            {"dataset": "diabetes", "test": TEST_FRACTION, "validation": settings.validation_fraction},
            {"inputs": inputs, "targets": targets},
        ),
    )


def read_table(folder: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns measurements of shape (442, 10) and progressions of shape (442, 1), from scikit-learn's folder of data."""
    inputs = np.loadtxt(folder / "diabetes_data_raw.csv.gz")
    return inputs, np.loadtxt(folder / "diabetes_target.csv.gz")[:, None]

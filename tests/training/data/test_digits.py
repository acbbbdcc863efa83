"""The digits that ship with scikit-learn."""

from __future__ import annotations

import numpy as np
import torch
from sklearn import datasets

from training.config.schema import DataSettings
from training.data.digits import load_digits, read_table
from training.data.loader import EvalLoader
from training.data.options import DigitsOptions
from training.data.types import DataBundle


def _load(validation_fraction: float = 0.1, shift: int = 1) -> DataBundle:
    return load_digits(DataSettings(validation_fraction=validation_fraction), DigitsOptions(shift=shift))


def test_the_table_equals_the_one_from_scikit_learn() -> None:
    """The loader reads the file without importing scikit-learn. This fails if a release moves the file."""
    published = datasets.load_digits()
    images, labels = read_table()
    np.testing.assert_array_equal(images[:, 0], published.images)
    np.testing.assert_array_equal(labels, published.target)


def test_the_splits_partition_the_images_and_are_balanced() -> None:
    bundle = _load()
    splits = (bundle.train, bundle.validation, bundle.test)
    assert [len(split) for split in splits] == [1293, 145, 359]
    pixels = torch.cat([split.read(np.arange(len(split)))[0] for split in splits]).flatten(1)
    assert len(torch.unique(pixels, dim=0)) == len(np.unique(datasets.load_digits().data, axis=0)) == 1797
    for split in splits:
        shares = split.read(np.arange(len(split)))[1].bincount(minlength=10) / len(split)
        assert 0.085 < shares.min() < shares.max() < 0.115


def test_inputs_have_zero_mean_and_unit_variance() -> None:
    bundle = _load()
    (batch,) = EvalLoader(bundle.train, batch=2000, rank=0, world=1)
    assert batch.inputs.shape == (1293, *bundle.spec.shape)
    assert abs(batch.inputs.mean()) < 0.02
    assert abs(batch.inputs.std() - 1) < 0.02


def test_only_training_images_are_shifted_by_at_most_the_option() -> None:
    bundle = _load(shift=2)
    assert (bundle.train.draws, bundle.validation.draws, bundle.test.draws) == (2, 0, 0)
    shifted, _ = bundle.train.read(np.array([0]), np.array([[0.0, 0.0]]))
    plain, _ = bundle.train.read(np.array([0]))
    assert torch.equal(shifted[..., 2:, 2:], plain[..., :-2, :-2])


def test_only_the_fingerprint_and_the_validation_split_depend_on_its_fraction() -> None:
    first, second = _load(0.1), _load(0.3)
    assert torch.equal(first.test.read(np.arange(359))[0], second.test.read(np.arange(359))[0])
    assert len(second.validation) > len(first.validation)
    assert first.fingerprint == _load(0.1, shift=2).fingerprint != second.fingerprint

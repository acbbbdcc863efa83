"""The digits that scikit-learn ships."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits

from training.config.schema import DataSettings
from training.data.digits import load, read_table
from training.data.loader import EvalLoader
from training.data.options import DigitsOptions
from training.data.types import DataBundle


def _load(validation_fraction: float = 0.1, shift: int = 1) -> DataBundle:
    return load(DataSettings(validation_fraction=validation_fraction), DigitsOptions(shift=shift))


def test_the_table_is_the_one_that_scikit_learn_returns() -> None:
    """The file is read without importing scikit-learn; this is what notices if a release moves it."""
    published = load_digits()
    images, labels = read_table()
    np.testing.assert_array_equal(images[:, 0], published.images)
    np.testing.assert_array_equal(labels, published.target)


def test_the_splits_share_no_image_and_leave_none_out() -> None:
    bundle = _load()
    splits = (bundle.train, bundle.validation, bundle.test)
    assert [len(split) for split in splits] == [1293, 145, 359]
    pixels = torch.cat([split.read(np.arange(len(split)))[0] for split in splits]).flatten(1)
    assert len(torch.unique(pixels, dim=0)) == len(np.unique(load_digits().data, axis=0)) == 1797


def test_every_class_is_equally_frequent_in_every_split() -> None:
    bundle = _load()
    for split in (bundle.train, bundle.validation, bundle.test):
        labels = split.read(np.arange(len(split)))[1]
        shares = labels.bincount(minlength=10) / len(split)
        assert shares.min() > 0.085
        assert shares.max() < 0.115


def test_inputs_have_mean_0_and_deviation_1() -> None:
    bundle = _load()
    (batch,) = EvalLoader(bundle.train, batch=2000, rank=0, world=1)
    assert batch.inputs.shape == (1293, *bundle.spec.shape)
    assert abs(batch.inputs.mean()) < 0.02
    assert abs(batch.inputs.std() - 1) < 0.02


def test_the_test_split_does_not_change_with_the_validation_fraction() -> None:
    first, second = _load(0.1), _load(0.3)
    assert torch.equal(first.test.read(np.arange(359))[0], second.test.read(np.arange(359))[0])
    assert len(second.validation) > len(first.validation)


def test_the_fingerprint_changes_with_the_split_and_not_with_the_augmentation() -> None:
    assert _load(0.1).fingerprint == _load(0.1, shift=2).fingerprint
    assert _load(0.1).fingerprint != _load(0.2).fingerprint

"""Generated samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from training.config.schema import DataSettings
from training.data.loader import EvalLoader
from training.data.options import SyntheticOptions
from training.data.synthetic import SyntheticSplit, load_synthetic
from training.data.types import Batch, DataBundle, Split

FEATURES = SyntheticOptions(samples=2000, evaluation_samples=500, features=50, classes=5, noise=2.0)
IMAGES = SyntheticOptions(kind="images", samples=2000, evaluation_samples=500, classes=5, height=12, width=10)


def _load(options: SyntheticOptions) -> DataBundle:
    return load_synthetic(DataSettings(dataset="synthetic"), options)


def _read_all(split: Split) -> Batch:
    (batch,) = EvalLoader(split, batch=len(split), rank=0, world=1)
    return batch


@pytest.mark.parametrize(("options", "shape"), [(FEATURES, (50,)), (IMAGES, (3, 12, 10))], ids=["features", "images"])
def test_samples_have_the_shape_and_classes_that_can_be_told(options: SyntheticOptions, shape: tuple[int, ...]) -> None:
    bundle = _load(options)
    train, test = _read_all(bundle.train), _read_all(bundle.test)
    assert bundle.spec.shape == shape
    assert train.inputs.shape == (2000, *shape)
    assert train.inputs.dtype == torch.float32
    assert abs(train.inputs.std() - 1) < 0.1
    assert train.targets.bincount().tolist() == [400] * 5
    means = torch.stack([train.inputs[train.targets == label].mean(0) for label in range(5)]).flatten(1)
    nearest = torch.cdist(test.inputs.flatten(1), means).argmin(1)
    assert (nearest == test.targets).float().mean() > 0.8


def test_all_samples_of_all_splits_are_distinct_and_the_noise_of_a_million() -> None:
    bundle = _load(FEATURES)
    inputs = torch.cat([_read_all(split).inputs for split in (bundle.train, bundle.validation, bundle.test)])
    assert len(torch.unique(inputs, dim=0)) == 3000
    split = _load(SyntheticOptions(samples=2**20, evaluation_samples=1, features=1)).train
    assert isinstance(split, SyntheticSplit)
    assert len(torch.unique(split._offsets)) == 2**20


def test_a_sample_does_not_depend_on_the_other_ids_of_the_read() -> None:
    ids = np.array([1999, 3, 3, 0])
    again, whole = _load(FEATURES).train.read(ids)[0], _read_all(_load(FEATURES).train).inputs
    assert torch.equal(again, whole[ids])


def test_different_seeds_give_different_samples_and_fingerprints() -> None:
    first, second = _load(FEATURES), _load(FEATURES.model_copy(update={"seed": 1}))
    assert not torch.equal(_read_all(first.test).inputs, _read_all(second.test).inputs)
    assert first.fingerprint != second.fingerprint
    assert first.fingerprint == _load(FEATURES).fingerprint

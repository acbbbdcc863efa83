"""Generated samples and texts: their classes can be learned, and nothing else tells them apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from observability.runlog import Evaluated, read_all, select
from tests.training.runs import run_alone, small_settings
from training.config.schema import DataSettings
from training.data.loader import EvalLoader
from training.data.options import SyntheticOptions, SyntheticTextOptions
from training.data.synthetic import SyntheticSplit, load_synthetic
from training.data.synthetic_text import load_synthetic_text
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


def bundle(**options: float) -> DataBundle:
    """The dataset with these options."""
    return load_synthetic_text(DataSettings(), SyntheticTextOptions.model_validate(options))


def test_samples_are_tokens_of_the_vocabulary_and_classes_are_equally_frequent() -> None:
    data = bundle(samples=400, evaluation_samples=40, vocabulary=300, length=10)
    assert (len(data.train), len(data.validation), len(data.test)) == (400, 40, 40)
    tokens, classes = data.train.read(np.arange(400))
    assert tokens.shape == (400, 10)
    assert tokens.dtype == classes.dtype == torch.int64
    assert int(tokens.min()) >= 0
    assert int(tokens.max()) < 300
    assert classes.bincount().tolist() == [100] * 4


def test_a_text_has_as_many_keywords_of_its_class_as_asked_for() -> None:
    """Also by chance: a token that is none by design is any of the vocabulary's."""
    options = {"samples": 2000, "vocabulary": 1000, "words_per_class": 20, "length": 50}
    pure = bundle(**options, keywords=1.0)
    tokens, classes = pure.train.read(np.arange(2000))
    words = [set(tokens[classes == one].flatten().tolist()) for one in range(4)]
    assert [len(one) for one in words] == [20] * 4
    assert len(set.union(*words)) == 80, "two classes share a keyword"
    mixed, classes = bundle(**options, keywords=0.1).train.read(np.arange(2000))
    own = [torch.isin(mixed[classes == one], torch.tensor(sorted(words[one]))).double().mean() for one in range(4)]
    expected = 0.1 + 0.9 * 20 / 1000
    np.testing.assert_allclose(own, expected, atol=0.01)


def test_a_text_depends_on_its_number_and_the_seed_only() -> None:
    data, other = bundle(samples=100), bundle(samples=100, seed=1)
    together, _ = data.train.read(np.array([3, 99, 3]))
    alone, _ = data.train.read(np.array([99]))
    assert torch.equal(together[0], together[2])
    assert torch.equal(together[1:2], alone)
    assert not torch.equal(alone, other.train.read(np.array([99]))[0])
    assert data.fingerprint != other.fingerprint
    assert data.fingerprint == bundle(samples=100).fingerprint


def test_more_keywords_than_the_vocabulary_has_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"4 x 50 = 200 keywords, but vocabulary=100"):
        SyntheticTextOptions(vocabulary=100)


def test_a_recurrent_classifier_learns_the_four_classes(tmp_path: Path) -> None:
    run_alone(
        small_settings(
            model={"name": "rnn", "options": {"embedding": 32, "hidden": 32}},
            data={"dataset": "synthetic_text", "options": {"samples": 4000, "length": 32, "keywords": 0.2}},
            loop={"epochs": 3},
        ),
        tmp_path / "run",
    )
    (test,) = [one for one in select(read_all(tmp_path / "run"), Evaluated) if one.split == "test"]
    assert test.metrics["accuracy"] > 0.8

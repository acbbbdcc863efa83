"""Generated texts: their classes can be learned, and nothing else tells them apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from observability.runlog import Evaluated, read_all, select
from tests.training.runs import run_alone, small_settings
from training.config.schema import DataSettings
from training.data.options import SyntheticTextOptions
from training.data.synthetic_text import load_synthetic_text
from training.data.types import DataBundle


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

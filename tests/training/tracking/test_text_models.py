"""Registered models of texts: trained, registered in a real MLflow server, loaded and called with texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tests.engines.mlflow_server import MlflowServer
from tests.training.data.test_parquet import write
from tests.training.runs import run_alone, small_settings
from training.config.schema import DataSettings, TrainingSettings
from training.data.registry import load_dataset
from training.data.types import SampleSpec
from training.errors import DataError
from training.export import load_exported
from training.tracking.model import register_model
from training.tracking.text_models import TextInterface

WORDS = ["pad", "unknown", "good", "great", "bad", "awful", "film", "the", "was"]
LENGTH = 6


def word_tokenizer(*, pads: bool = True) -> Tokenizer:
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="unknown"))
    tokenizer.pre_tokenizer = Whitespace()
    if pads:
        tokenizer.enable_padding(pad_id=0, pad_token="pad")
    return tokenizer


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """Tokens of reviews with named classes, and the vocabulary that made them."""
    folder = tmp_path / "reviews"
    tokenizer = word_tokenizer()
    tokenizer.enable_padding(pad_id=0, pad_token="pad", length=LENGTH)
    texts = [f"the film was {word}" for word in ("good", "great", "bad", "awful")] * 40
    tokens = [one.ids for one in tokenizer.encode_batch(texts)]
    write(folder / "0.parquet", {"tokens": tokens, "label": ["praise", "praise", "blame", "blame"] * 40})
    word_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def classifier(folder: Path) -> dict[str, dict[str, Any]]:
    options = {"kind": "tokens", "inputs": ["tokens"], "target": "label", "vocabulary": len(WORDS)}
    return {
        "data": {"dataset": "parquet", "path": str(folder), "options": options},
        "model": {"name": "rnn", "options": {"embedding": 8, "hidden": 8, "dropout": 0.0}},
        "optimizer": {"learning_rate": 0.03},
        "loop": {"epochs": 6, "global_batch": 16},
    }


def trained_and_registered(settings: TrainingSettings, folder: Path, uri: str, name: str) -> str:
    """Train and register; returns the model's address."""
    assert run_alone(settings, folder).status == "done"
    mlflow.set_tracking_uri(uri)
    run = mlflow.MlflowClient().create_run("0")
    version = register_model(folder, run_id=run.info.run_id, name=name)
    return f"models:/{name}/{version}"


@pytest.mark.extended
def test_a_classifier_returns_classes_and_scores_of_texts(
    mlflow_server: MlflowServer, reviews: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    address = trained_and_registered(small_settings(**classifier(reviews)), folder, mlflow_server.uri, "reviews")
    loaded = mlflow.pyfunc.load_model(address)
    texts = ["the film was awful", "great film", "the film was good the film was good the film"]
    found = loaded.predict(texts)
    assert found["class"].tolist() == ["blame", "praise", "praise"]
    tokenizer = word_tokenizer()
    tokenizer.enable_padding(pad_id=0, pad_token="pad", length=LENGTH)
    tokenizer.enable_truncation(LENGTH)
    tokens = torch.tensor([one.ids for one in tokenizer.encode_batch(texts)])
    with torch.no_grad():
        expected = load_exported(folder / "model")(tokens).double().softmax(-1).numpy()
    np.testing.assert_allclose(np.stack(found["scores"]), expected, atol=1e-6)
    assert found["score"].tolist() == [max(scores) for scores in found["scores"]]
    assert loaded.predict(pd.DataFrame({"review": texts[:1]}))["class"].tolist() == ["blame"], "also a batch of one"
    assert [column.name for column in loaded.metadata.signature.outputs] == ["class", "score", "scores"]
    assert len(mlflow.models.Model.load(address).load_input_example()) == 2


@pytest.mark.extended
def test_a_language_model_continues_texts_with_likely_tokens(mlflow_server: MlflowServer, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "0.txt").write_text("abcdefg" * 400)
    settings = small_settings(
        data={"dataset": "text_files", "path": str(tmp_path / "texts"), "options": {"length": 16}},
        model={"name": "transformer", "options": {"layers": 1, "width": 32, "heads": 2}},
        objective={"name": "language_modelling"},
        optimizer={"learning_rate": 0.02},
        loop={"epochs": 15, "global_batch": 16},
    )
    folder = tmp_path / "run"
    loaded = mlflow.pyfunc.load_model(trained_and_registered(settings, folder, mlflow_server.uri, "letters"))
    texts = ["abc", "defg" + "abcdefg" * 5 + "abcd"]
    assert loaded.predict(texts, params={"max_new_tokens": 0}) == ["", ""]
    found = loaded.predict(texts, params={"max_new_tokens": 3})
    assert found == ["def", "efg"], "a token is one letter"
    network, vocabulary = load_exported(folder / "model"), Tokenizer.from_file(str(folder / "model" / "tokenizer.json"))
    for text, continued in zip(texts, found, strict=True):
        tokens = vocabulary.encode(text).ids
        start = len(tokens)
        for _ in range(3):
            with torch.no_grad():
                tokens.append(int(network(torch.tensor([tokens[-16:]]))[0, -1].argmax()))
        assert continued == vocabulary.decode(tokens[start:])
    assert len(loaded.predict([""], params={"max_new_tokens": 2})) == 1, "a text may be empty"
    assert loaded.metadata.signature.params.params[0].name == "max_new_tokens"
    with pytest.raises(mlflow.MlflowException, match="max_new_tokens=-1: must be 0 or more"):
        loaded.predict(["a"], params={"max_new_tokens": -1})


def test_a_vocabulary_that_does_not_fit_the_tokens_is_refused(reviews: Path) -> None:
    settings = DataSettings.model_validate(classifier(reviews)["data"])
    before = load_dataset(settings)
    assert before.files["classes.json"] == b'["blame", "praise"]'
    larger = word_tokenizer()
    larger.add_tokens(["another"])
    for vocabulary, said in (
        (word_tokenizer(pads=False).to_str(), "does not say how a text of fewer than 6 tokens is padded"),
        ("{}", "is not a vocabulary of the library tokenizers"),
        (larger.to_str(), r"has 10 tokens, more than data\.options\.vocabulary=9"),
    ):
        (reviews / "tokenizer.json").write_text(vocabulary)
        with pytest.raises(DataError, match=said):
            load_dataset(settings)
    (reviews / "tokenizer.json").unlink()
    assert load_dataset(settings).fingerprint != before.fingerprint


def test_a_model_without_a_vocabulary_or_without_classes_takes_tensors(tmp_path: Path) -> None:
    classes = SampleSpec(shape=(LENGTH,), outputs=2, vocabulary=len(WORDS))
    assert TextInterface.find(tmp_path, classes) is None
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    assert TextInterface.find(tmp_path, classes) is None
    (tmp_path / "classes.json").write_text('["blame", "praise"]')
    found = TextInterface.find(tmp_path, classes)
    assert found is not None
    assert found.classes == ("blame", "praise")
    assert TextInterface.find(tmp_path, SampleSpec(shape=(LENGTH,), outputs=2)) is None

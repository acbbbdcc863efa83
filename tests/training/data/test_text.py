"""Text as bytes and as tokens of a learned vocabulary."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from observability.runlog import Evaluated, read_all, select
from tests.training.runs import run_alone, small_settings
from training.config.schema import DataSettings, OptionValue, TrainingSettings
from training.data.registry import load_dataset, validate
from training.data.tokenizer import SEPARATOR, encode, learn, of_bytes
from training.data.types import DataBundle
from training.errors import DataError, ResumeMismatchError, SettingsError

BPE: dict[str, OptionValue] = {"tokenizer": "bpe", "vocabulary": 300, "length": 16}
WORDS = "the quick brown fox jumps over the lazy dog, über älteren Flüssen, 的狐狸跳过了懒狗 "


def write(folder: Path, *texts: str | bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        (folder / f"{number}.{'TXT' if number == 1 else 'txt'}").write_bytes(
            text.encode() if isinstance(text, str) else text
        )
    return folder


def load(folder: Path, **options: OptionValue) -> DataBundle:
    return load_dataset(DataSettings(dataset="text_files", path=folder, options=options))


def tokenizer_of(bundle: DataBundle) -> Tokenizer:
    return Tokenizer.from_str(bundle.files["tokenizer.json"].decode())


def test_bytes_are_the_samples_that_earlier_versions_had(tmp_path: Path) -> None:
    """So that their runs resume: the fingerprint was computed by the version before tokenizers."""
    bundle = load(write(tmp_path, WORDS * 20, "second"), length=16)
    inputs, targets = bundle.train.read(np.array([1]))
    assert bytes(inputs[0].tolist()) == WORDS.encode()[16:32]
    assert bytes(targets[0].tolist()) == WORDS.encode()[17:33]
    assert bundle.spec.vocabulary == 256
    assert tokenizer_of(bundle).encode(WORDS).ids == list(WORDS.encode())
    assert bundle.fingerprint == "0c632dd341b570c7f19191e897143fa26b63ee412b0a7beb6fb97a7d98f14aa1"


def test_tokens_decode_to_the_text_of_their_split(tmp_path: Path) -> None:
    text = WORDS * 100
    bundle = load(write(tmp_path, text), **BPE)
    tokenizer = tokenizer_of(bundle)
    assert bundle.spec.vocabulary == bundle.spec.outputs == tokenizer.get_vocab_size() == 300
    inputs, targets = bundle.train.read(np.arange(len(bundle.train)))
    assert inputs.dtype == torch.int64
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    decoded = tokenizer.decode(inputs.flatten().tolist())
    assert text.startswith(decoded)
    assert len(decoded) > 0.75 * len(text)
    assert inputs.numel() < len(decoded.encode()) / 2, "a token is several bytes"


def test_texts_are_separated_by_a_token_of_their_own(tmp_path: Path) -> None:
    bundle = load(write(tmp_path, WORDS * 40, f"literally {SEPARATOR} " + WORDS * 40), **BPE)
    tokens, _ = bundle.train.read(np.arange(len(bundle.train)))
    assert (tokens == 0).sum() == 1
    assert f"literally {SEPARATOR} the" in tokenizer_of(bundle).decode(tokens.flatten().tolist())


def test_the_vocabulary_is_learned_from_the_training_split_only(tmp_path: Path) -> None:
    text = (WORDS * 100).encode()
    one = load(write(tmp_path / "a", text), **BPE)
    seen = text[: int(0.85 * len(text))].decode(errors="ignore").encode()
    other = load(write(tmp_path / "b", seen + (b"zebra " * len(text))[: len(text) - len(seen)]), **BPE)
    assert one.files == other.files
    assert one.fingerprint != other.fingerprint


def test_no_character_is_cut_between_two_splits(tmp_path: Path) -> None:
    for characters in range(1000, 1006):
        bundle = load(
            write(tmp_path, "".join(chr(0x4E00 + 37 * one % 2000) for one in range(characters))), **{**BPE, "length": 2}
        )
        tokenizer = tokenizer_of(bundle)
        for split in (bundle.train, bundle.validation, bundle.test):
            tokens, _ = split.read(np.arange(len(split)))
            assert not tokenizer.decode(tokens.flatten().tolist()).startswith("\ufffd")


@given(text=st.text(max_size=200))
def test_the_vocabulary_of_bytes_has_the_bytes_of_any_text(text: str) -> None:
    tokenizer = of_bytes()
    tokens = tokenizer.encode(text).ids
    assert bytes(tokens) == text.encode()
    assert tokenizer.decode(tokens) == text


@given(text=st.text(max_size=200), limit=st.integers(258, 300))
def test_any_text_is_encoded_without_loss(text: str, limit: int) -> None:
    tokenizer = learn([WORDS], vocabulary=limit)
    assert tokenizer.decode(encode(tokenizer, [text]).tolist(), skip_special_tokens=False) == text


def test_a_long_text_is_encoded_in_pieces_without_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.data.tokenizer._PIECE", 50)
    text = (WORDS + "\n\n") * 30 + "x" * 170
    tokenizer = learn([text], vocabulary=300)
    assert tokenizer.decode(encode(tokenizer, [text]).tolist()) == text


def test_every_process_learns_the_same_vocabulary(tmp_path: Path) -> None:
    folder = write(tmp_path, WORDS * 100, "second file " * 100)
    program = (
        "import sys; from tests.training.data.test_text import *; "
        "print(load(Path(sys.argv[1]), **{**BPE, 'vocabulary': 1000}).fingerprint)"
    )
    done = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == load(folder, **{**BPE, "vocabulary": 1000}).fingerprint


def test_a_text_in_another_encoding_is_refused_by_name(tmp_path: Path) -> None:
    folder = write(tmp_path, WORDS * 20, "größer".encode("latin-1"))
    with pytest.raises(DataError, match=r"1\.TXT is not UTF-8: byte 0xf6 at 2\n"):
        load(folder, **BPE)
    assert load(folder, length=16).spec.vocabulary == 256


def test_too_little_text_and_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has \d+ tokens, 95 bytes: too few for samples of data\.options\.length=16"):
        load(write(tmp_path, WORDS), **BPE)
    cases: list[tuple[dict[str, OptionValue], str]] = [
        ({"vocabulary": 500}, "vocabulary=500 is an option of tokenizer=bpe, got tokenizer=bytes"),
        ({"tokenizer": "bpe", "vocabulary": 257}, r"data\.options\.vocabulary = 257: must be greater than 257"),
        ({"tokenizer": "words"}, r"data\.options\.tokenizer = words: must be one of bytes, bpe"),
    ]
    for options, said in cases:
        with pytest.raises(SettingsError, match=said):
            validate(DataSettings(dataset="python_reference", options=options))


def test_a_transformer_learns_tokens_and_its_model_has_the_vocabulary(tmp_path: Path) -> None:
    folder = write(tmp_path / "text", WORDS * 200)

    def settings(vocabulary: int, epochs: int) -> TrainingSettings:
        return small_settings(
            model={"name": "transformer", "options": {"width": 32, "heads": 2, "layers": 1}},
            objective={"name": "language_modelling"},
            data={"dataset": "text_files", "path": str(folder), "options": {**BPE, "vocabulary": vocabulary}},
            schedule={"name": "constant"},
            loop={"epochs": epochs, "global_batch": 8},
        )

    run = tmp_path / "run"
    run_alone(settings(300, 3), run)
    (test,) = [one for one in select(read_all(run), Evaluated) if one.split == "test"]
    assert test.metrics["perplexity"] < 40, "of 300 tokens"
    kept, exported = (run / place / "tokenizer.json" for place in ("data", "model"))
    assert kept.read_bytes() == exported.read_bytes() == load(folder, **BPE).files["tokenizer.json"]
    tokenizer = Tokenizer.from_file(str(exported))
    assert tokenizer.decode(tokenizer.encode("the lazy fox").ids) == "the lazy fox"
    with pytest.raises(ResumeMismatchError, match="dataset_fingerprint"):
        run_alone(settings(290, 4), run, attempt=1)

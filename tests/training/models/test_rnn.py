"""The recurrent classifier: shapes, parameter counts, directions, and what it refuses."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import nn

from training.data.types import SampleSpec
from training.errors import SettingsError
from training.models.options import RnnOptions
from training.models.rnn import rnn

TEXTS = SampleSpec(shape=(12,), outputs=4, vocabulary=100)


def test_the_parameters_are_those_of_the_formula() -> None:
    """Each gate of a layer has a matrix of its inputs, one of its states, and two biases (torch.nn.LSTM, torch.nn.GRU)."""
    for (cell, gates), directions, layers in product((("lstm", 4), ("gru", 3)), (1, 2), (1, 2)):
        sizes = {"embedding": 8, "hidden": 16, "layers": layers, "bidirectional": directions == 2}
        model = rnn(TEXTS, RnnOptions.model_validate({"cell": cell, **sizes}))
        widths = [8, *[16 * directions] * (layers - 1)]
        recurrent = sum(directions * gates * 16 * (width + 16 + 2) for width in widths)
        assert sum(p.numel() for p in model.parameters()) == 100 * 8 + recurrent + 16 * directions * 4 + 4
        assert model(torch.randint(100, (3, 12))).shape == (3, 4)


def test_only_a_bidirectional_one_sees_later_tokens_in_an_early_state() -> None:
    for bidirectional in (True, False):
        model = rnn(TEXTS, RnnOptions(bidirectional=bidirectional)).eval()
        tokens = torch.randint(100, (1, 12))
        changed = tokens.clone()
        changed[0, -1] = (changed[0, -1] + 1) % 100
        before, after = (model.recurrent(model.tokens(one))[0][0, 0] for one in (tokens, changed))
        assert torch.equal(before, after) is not bidirectional


def test_numbers_and_targets_for_each_token_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"model\.name=rnn expects tokens, .* shape \(784,\)"):
        rnn(SampleSpec(shape=(784,), outputs=10), RnnOptions())
    with pytest.raises(SettingsError, match="classifies whole texts"):
        rnn(SampleSpec(shape=(12,), outputs=50, vocabulary=50, is_sequence=True), RnnOptions())


def test_one_layer_has_no_dropout_that_torch_warns_of() -> None:
    model = rnn(TEXTS, RnnOptions(dropout=0.5))
    assert model.recurrent.dropout == 0.0
    assert [one.p for one in model.modules() if isinstance(one, nn.Dropout)] == [0.5]

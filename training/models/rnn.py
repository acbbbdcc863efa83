"""A recurrent classifier of texts: embedding, LSTM or GRU, mean over the positions, linear head."""

from __future__ import annotations

from torch import Tensor, nn

from training.data.types import SampleSpec
from training.errors import SettingsError
from training.models.options import RnnOptions

_CELLS: dict[str, type[nn.LSTM | nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class RnnClassifier(nn.Module):
    """Reads a text in both directions, unless told otherwise, and classifies it by the mean of its states."""

    def __init__(self, spec: SampleSpec, options: RnnOptions) -> None:
        super().__init__()
        self.tokens = nn.Embedding(spec.vocabulary, options.embedding)
        self.dropout = nn.Dropout(options.dropout)
        self.recurrent = _CELLS[options.cell](
            options.embedding,
            options.hidden,
            num_layers=options.layers,
            batch_first=True,
            bidirectional=options.bidirectional,
            # torch warns of dropout with one layer, because it is between the layers.
            dropout=options.dropout if options.layers > 1 else 0.0,
        )
        self.head = nn.Linear(options.hidden * (2 if options.bidirectional else 1), spec.outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps tokens (n, length) to logits (n, outputs)."""
        states, _ = self.recurrent(self.dropout(self.tokens(inputs)))
        logits: Tensor = self.head(self.dropout(states.mean(dim=1)))
        return logits


def rnn(spec: SampleSpec, options: RnnOptions) -> RnnClassifier:
    """Builds an `RnnClassifier`.

    Raises:
        SettingsError: the samples are not tokens, or each position has a target.
    """
    if not spec.vocabulary or len(spec.shape) != 1:
        raise SettingsError(
            f"model.name=rnn expects tokens, but the samples are numbers of shape {spec.shape}",
            remedy="set model.name=mlp, or a data.dataset of text",
        )
    if spec.is_sequence:
        raise SettingsError(
            "model.name=rnn classifies whole texts, but the dataset has a target for each token",
            remedy="set model.name=transformer, or a data.dataset of classes, e.g. synthetic_text",
        )
    return RnnClassifier(spec, options)

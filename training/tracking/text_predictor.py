"""The model that MLflow loads for texts: it turns texts into tokens, calls the network, and returns classes or continuations.

MLflow stores this file with the model and runs it when the model is loaded ("models from code"), so it imports nothing of this
repository. Its `model_config` has `length`, the tokens that the network reads at once, and `classes`, whose names a classifier returns, or
null for a language model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import torch
from mlflow.exceptions import MlflowException
from numpy.typing import NDArray
from tokenizers import Tokenizer

_SEPARATOR = 0
"""The token between two texts, with which a language model ends one."""


class TextPredictor(mlflow.pyfunc.PythonModel):  # type: ignore[misc] # MLflow publishes no types
    """A text classifier or a language model."""

    def load_context(self, context: Any) -> None:  # noqa: ANN401 - MLflow's, whose types are not published
        """Read the network and the vocabulary."""
        self._network = mlflow.pytorch.load_model(context.artifacts["network"])
        self._tokenizer = Tokenizer.from_file(context.artifacts["tokenizer"])
        self._length = int(context.model_config["length"])
        self._classes: list[str] | None = context.model_config["classes"]
        if self._classes is None:
            # Where a text has the characters of the separator, they are characters, as in training.
            self._tokenizer.encode_special_tokens = True
        else:
            self._tokenizer.enable_truncation(self._length)
            self._tokenizer.enable_padding(**{**(self._tokenizer.padding or {}), "length": self._length})

    def predict(
        self,
        context: Any,  # noqa: ANN401, ARG002 - MLflow's
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame | list[str]:
        """Classify texts, or continue them.

        Args:
            context: of MLflow.
            model_input: a column of texts.
            params: of a language model `max_new_tokens`, the tokens of a continuation at most.

        Returns:
            Of a classifier a row for each text: `class`, its `score`, and `scores` of all classes, which add up to 1. Of a language
            model what follows each text: the most probable token, again and again, until a text ends.

        Raises:
            MlflowException: `max_new_tokens` is negative.
        """
        texts = [str(text) for text in model_input.iloc[:, 0]]
        with torch.inference_mode():
            if self._classes is not None:
                return self._classify(texts, self._classes)
            return self._continue(texts, int((params or {}).get("max_new_tokens", 32)))

    def _classify(self, texts: Sequence[str], classes: Sequence[str]) -> pd.DataFrame:
        tokens = np.array([one.ids for one in self._tokenizer.encode_batch(texts)], dtype=np.int64)
        scores = self._network(torch.from_numpy(tokens)).double().softmax(dim=-1).numpy()
        best = scores.argmax(axis=-1)
        return pd.DataFrame(
            {
                "class": [classes[number] for number in best],
                "score": scores[np.arange(len(best)), best],
                "scores": list(scores),
            }
        )

    def _continue(self, texts: Sequence[str], most: int) -> list[str]:
        if most < 0:
            raise MlflowException.invalid_parameter_value(f"max_new_tokens={most}: must be 0 or more")
        tokens = [one.ids or [_SEPARATOR] for one in self._tokenizer.encode_batch(texts)]
        starts = [len(one) for one in tokens]
        open_texts = list(range(len(texts)))
        for _ in range(most):
            if not open_texts:
                break
            following = self._next_tokens([tokens[number] for number in open_texts])
            for number, token in zip(open_texts, following, strict=True):
                tokens[number].append(token)
            open_texts = [number for number in open_texts if tokens[number][-1] != _SEPARATOR]
        return [self._tokenizer.decode(one[start:]) for one, start in zip(tokens, starts, strict=True)]

    def _next_tokens(self, tokens: Sequence[Sequence[int]]) -> list[int]:
        """The most probable token after the last ones of each text, as many as the network reads."""
        inputs = np.full((len(tokens), self._length), _SEPARATOR, dtype=np.int64)
        last: NDArray[np.int64] = np.empty(len(tokens), dtype=np.int64)
        for row, one in enumerate(tokens):
            read = one[-self._length :]
            inputs[row, : len(read)] = read  # what follows is not seen by the positions before it
            last[row] = len(read) - 1
        logits = self._network(torch.from_numpy(inputs))[torch.arange(len(tokens)), torch.from_numpy(last)]
        return [int(token) for token in logits.argmax(dim=-1)]


mlflow.models.set_model(TextPredictor())

"""Logs models of texts in MLflow with their vocabulary, so that the loaded model takes texts; see `text_predictor`."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import Array, DataType
from tokenizers import Tokenizer

from training.data.classes import CLASSES_FILE
from training.data.tokenizer import TOKENIZER_FILE
from training.data.types import SampleSpec
from training.tracking.client import mlflow

_PREDICTOR = Path(__file__).with_name("text_predictor.py")

_EXAMPLES = ["It was a bright cold day in April", "To be, or not to be"]

_MOST_NEW_TOKENS = 32


@dataclass(frozen=True, kw_only=True)
class TextInterface:
    """What a model of texts needs beside its network.

    Attributes:
        tokenizer: the file of the vocabulary.
        length: tokens that the network reads at once.
        classes: names of a classifier's classes; None for a language model.
    """

    tokenizer: Path
    length: int
    classes: tuple[str, ...] | None

    @classmethod
    def find(cls, folder: Path, spec: SampleSpec) -> TextInterface | None:
        """The interface of an exported model; None if it has no vocabulary, or its outputs are neither tokens nor named classes.

        Args:
            folder: the folder of the exported model.
            spec: the samples that it was built for.
        """
        file = folder / TOKENIZER_FILE
        if not spec.vocabulary or len(spec.shape) != 1 or not file.is_file():
            return None
        (length,) = spec.shape
        if spec.is_sequence:
            return cls(tokenizer=file, length=length, classes=None) if spec.outputs == spec.vocabulary else None
        names = folder / CLASSES_FILE
        if not names.is_file() or Tokenizer.from_file(str(file)).padding is None:
            return None
        return cls(tokenizer=file, length=length, classes=tuple(json.loads(names.read_text(encoding="utf-8"))))

    @property
    def signature(self) -> mlflow.models.ModelSignature:
        """A column of texts; a table of classes and scores, or a column of texts and the parameter `max_new_tokens`."""
        texts = Schema([ColSpec(DataType.string)])
        if self.classes is None:
            most = ParamSpec("max_new_tokens", DataType.long, _MOST_NEW_TOKENS)
            return mlflow.models.ModelSignature(texts, Schema([ColSpec(DataType.string)]), ParamSchema([most]))
        scores = Array(DataType.double)
        columns = [ColSpec(DataType.string, "class"), ColSpec(DataType.double, "score"), ColSpec(scores, "scores")]
        return mlflow.models.ModelSignature(texts, Schema(columns))

    def log(self, save_network: dict[str, Any], *, pip_requirements: list[str]) -> mlflow.models.model.ModelInfo:
        """Log the model in the active run.

        Args:
            save_network: arguments of `mlflow.pytorch.save_model`, without the path.
            pip_requirements: what loading and calling it needs.
        """
        with tempfile.TemporaryDirectory(prefix="rtp-model-") as scratch:
            network = Path(scratch) / "network"
            mlflow.pytorch.save_model(path=str(network), pip_requirements=pip_requirements, **save_network)
            return mlflow.pyfunc.log_model(
                name="model",
                python_model=str(_PREDICTOR),
                artifacts={"network": str(network), "tokenizer": str(self.tokenizer)},
                model_config={"length": self.length, "classes": None if self.classes is None else list(self.classes)},
                signature=self.signature,
                input_example=_EXAMPLES,
                pip_requirements=pip_requirements,
            )

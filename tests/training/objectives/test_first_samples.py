"""Samples that do not fit are refused before the first step, with their dataset, split and place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.training.runs import run_alone, small_settings
from training.config.schema import DataSettings, ObjectiveSettings
from training.data.tables import TableSplit
from training.data.types import DataBundle, SampleSpec, Split
from training.errors import SettingsError
from training.objectives.registry import build_objective
from training.rank.first_samples import check_first_samples

ROWS = 20
PLACES = ("train", "validation", "test")
CLASSES, VALUES = SampleSpec(shape=(3,), outputs=4), SampleSpec(shape=(3,), outputs=1)
TOKENS = SampleSpec(shape=(3,), outputs=9, vocabulary=9, is_sequence=True)


def floats() -> Tensor:
    return torch.zeros(ROWS, 3)


def classes(last: int = 3) -> Tensor:
    return torch.tensor([*range(4), last]).repeat(4)


def values(last: float = 0.0) -> Tensor:
    return torch.tensor([[0.0], [last]]).repeat(10, 1)


def tokens(last: int = 8) -> Tensor:
    return torch.tensor([0, 1, last]).repeat(ROWS, 1)


@pytest.mark.parametrize(
    ("objective", "spec", "inputs", "targets", "said"),
    [
        ("classification", CLASSES, floats(), classes(4), "sample 4 has the class 4, outside 0 to 3"),
        ("classification", CLASSES, floats(), classes(-1), "sample 4 has the class -1, outside 0 to 3"),
        ("classification", CLASSES, floats(), values(), "needs targets of torch.int64 and shape"),
        ("classification", CLASSES, floats().double(), classes(), "inputs are of torch.float64 and shape"),
        (
            "classification",
            CLASSES,
            torch.zeros(ROWS, 2),
            classes(),
            r"shape \(2,\), and its SampleSpec says .* \(3,\)",
        ),
        ("regression", VALUES, floats(), values(float("nan")), r"sample 1 has the target \[nan\]"),
        ("language_modelling", TOKENS, tokens(9), tokens(), "sample 0 has the token 9, outside 0 to 8"),
        ("language_modelling", TOKENS, tokens(), tokens(9), "sample 0 has the token 9, outside 0 to 8"),
    ],
)
@pytest.mark.parametrize("place", PLACES)
def test_a_sample_that_does_not_fit_is_named(
    objective: str, spec: SampleSpec, inputs: Tensor, targets: Tensor, said: str, place: str
) -> None:
    fitting = {"classification": classes(), "regression": values(), "language_modelling": tokens(-100)}[objective]
    good = TableSplit(tokens() if spec.vocabulary else floats(), fitting)
    splits: dict[str, Split] = {**dict.fromkeys(PLACES, good), place: TableSplit(inputs, targets)}
    bundle = own(spec, splits)
    with pytest.raises(SettingsError, match=f"^{place} split of dataset own: .*{said}"):
        check_first_samples(bundle, build_objective(ObjectiveSettings(name=objective), spec))


def own(spec: SampleSpec, splits: Mapping[str, Split]) -> DataBundle:
    """A dataset of these splits."""
    train, validation, test = splits["train"], splits["validation"], splits["test"]
    return DataBundle(name="own", spec=spec, train=train, validation=validation, test=test, fingerprint="0" * 64)


def too_high(settings: DataSettings) -> DataBundle:
    """A dataset whose specification has one class less than its validation split."""
    del settings
    return own(CLASSES, {name: TableSplit(floats(), classes(4 if name == "validation" else 3)) for name in PLACES})


def test_a_run_is_refused_before_its_first_step(tmp_path: Path) -> None:
    data = {"dataset": f"{__name__}:too_high", "augment": False}
    with pytest.raises(SettingsError, match="validation split of dataset own: sample 4 has the class 4"):
        run_alone(small_settings(data=data, model={"name": "mlp"}), tmp_path)
    assert not list((tmp_path / "checkpoints").glob("*"))

"""Losses of classification, and objectives that do not fit: the data, the model, the ranking metric, and mistakes in one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tests.training.config.refused import assert_refused
from tests.training.launch.ranks import run_world
from tests.training.objectives.recipes import recipe
from tests.training.runs import run_alone, small_settings
from training.config.schema import ObjectiveSettings
from training.data.types import SampleSpec
from training.errors import ResumeMismatchError, SettingsError
from training.objectives.classification import Classification, classification
from training.objectives.options import ClassificationOptions
from training.objectives.registry import build_objective

SPEC = SampleSpec(shape=(4,), outputs=5)
WEIGHTS = (1.0, 2.0, 0.5, 3.0, 1.0)


def samples() -> tuple[Tensor, Tensor]:
    """Logits of 32 samples, and their classes."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(32, 5, generator=generator), torch.randint(0, 5, (32,), generator=generator)


def mean_loss(objective: Classification, outputs: Tensor, targets: Tensor, *, parts: int) -> float:
    """The mean loss over batches that are measured one by one, as ranks and micro-batches are."""
    pairs = list(zip(outputs.chunk(parts), targets.chunk(parts), strict=True))
    loss = sum(float(objective.measure(*pair)[0]) for pair in pairs)
    weights = [objective.weight(part) for _, part in pairs]
    return loss / sum(
        len(part) if weight is None else float(weight) for weight, (_, part) in zip(weights, pairs, strict=True)
    )


@pytest.mark.parametrize("class_weights", [(), WEIGHTS])
def test_the_training_loss_is_torch_s_and_an_evaluation_has_no_smoothing(class_weights: tuple[float, ...]) -> None:
    outputs, targets = samples()
    weight = torch.tensor(class_weights) if class_weights else None
    plain = float(cross_entropy(outputs, targets, weight=weight))
    for smoothing in (0.0, 0.1, 0.9):
        objective = classification(SPEC, ClassificationOptions(label_smoothing=smoothing, class_weights=class_weights))
        expected = float(cross_entropy(outputs, targets, weight=weight, label_smoothing=smoothing))
        evaluated = objective.for_evaluation()
        assert isinstance(evaluated, Classification)
        for parts in (1, 3):
            assert mean_loss(objective, outputs, targets, parts=parts) == pytest.approx(expected, rel=1e-5)
            assert mean_loss(evaluated, outputs, targets, parts=parts) == pytest.approx(plain, rel=1e-5)


class Centres(Classification):
    """Has a module beside the model: one that is trained with it, or a teacher."""

    def __init__(self, spec: SampleSpec, *, is_frozen: bool) -> None:
        super().__init__(spec.outputs, ClassificationOptions())
        self.centres = torch.nn.Linear(2, 3).requires_grad_(not is_frozen)


def test_weights_of_an_objective_that_nothing_would_train_are_refused() -> None:
    name = f"{__name__}:Centres"
    with pytest.raises(SettingsError, match="has the weight weight, which nothing would train"):
        build_objective(ObjectiveSettings(name=name, options={"is_frozen": False}), SPEC)
    build_objective(ObjectiveSettings(name=name, options={"is_frozen": True}), SPEC)


def test_wrong_settings_are_refused_before_anything_starts() -> None:
    best = "checkpoint.best_metric"
    cases = {
        "objective.name=clasification": "did you mean classification",
        "objective.options.mixup=-1": "objective.options.mixup",
        "objective.options.smoothing=0.1": "objective.options.smoothing",
        "objective.name=no_such_package:Loss": "no module named 'no_such_package'",
        f"{best}=validation_f1": "objective classification reports no such metric",
        f"objective.name=regression {best}=validation_mean_absolute_eror": "did you mean",
        f"{best}=accuracy": best,
    }
    assert_refused(cases)


def test_what_does_not_fit_together_is_named(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, dict[str, Any]], str]] = [
        ({"objective": {"name": "regression"}}, "needs targets of torch.float32"),
        ({"objective": {"name": "language_modelling"}}, "needs targets of torch.int64 and shape (1, 8, 8)"),
        ({"objective": {"options": {"class_weights": [1, 2]}}}, "has 2 weights for 10 classes"),
        ({"model": {"name": "tests.training.objectives.own:too_narrow"}}, "the model returns (64, 9) for 64 samples"),
        ({"model": {"name": "transformer"}}, "expects tokens"),
        ({"data": {"dataset": "python_reference"}, "objective": {"name": "language_modelling"}}, "expects images"),
    ]
    for number, (sections, message) in enumerate(cases):
        with pytest.raises(SettingsError) as caught:
            run_alone(small_settings(**sections), tmp_path / str(number))
        assert message in str(caught.value)
        assert caught.value.remedy


def test_mistakes_in_an_objective_of_your_own_are_named(tmp_path: Path) -> None:
    for name, message in (
        ("NoGradient", "the loss has no gradient"),
        ("Aside", "the gradient of the loss reaches no weight of the model"),
        ("NotSummed", "loss is a tensor of shape (32, 1)"),
        ("OneShort", "must return 2 scalar tensors: loss, below; it returned a tuple of 1"),
        ("padded_text", "returned DataBundle"),
        ("NothingComputes", "nothing computes the metrics above"),
        ("NoLoss", "`metrics` lacks loss"),
        ("RankedByNothing", "`metrics` lacks above"),
        ("LeftOut", "report leaves out below"),
    ):
        objective = {"name": f"tests.training.objectives.own:{name}", "options": {}}
        with pytest.raises(SettingsError) as caught:
            run_alone(recipe("own", objective=objective), tmp_path / name)
        assert message in str(caught.value)


def test_a_loss_that_trains_nothing_is_refused_on_several_ranks(tmp_path: Path) -> None:
    objective = {"name": "tests.training.objectives.own:Aside", "options": {}}
    with pytest.raises(SettingsError, match=r"objective Aside: .* no"):
        run_world(recipe("own", workers=2, objective=objective), tmp_path / "run")


def test_a_checkpoint_of_another_objective_is_refused(tmp_path: Path) -> None:
    run_alone(recipe("regression", loop={"max_steps": 4}), tmp_path / "run")
    other = recipe("own", model={"options": {"hidden": [16], "dropout": 0.1}}, loop={"max_steps": 8})
    with pytest.raises(ResumeMismatchError, match="objective: saved regression, wanted tests"):
        run_alone(other, tmp_path / "run")

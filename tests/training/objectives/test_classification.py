"""Label smoothing is torch's in training, and absent from what is reported of validation and test."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from training.data.types import SampleSpec
from training.objectives.classification import Classification, classification
from training.objectives.options import ClassificationOptions

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
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_the_training_loss_is_torch_s(smoothing: float, class_weights: tuple[float, ...]) -> None:
    outputs, targets = samples()
    objective = classification(SPEC, ClassificationOptions(label_smoothing=smoothing, class_weights=class_weights))
    weight = torch.tensor(class_weights) if class_weights else None
    expected = float(cross_entropy(outputs, targets, weight=weight, label_smoothing=smoothing))
    for parts in (1, 3):
        assert mean_loss(objective, outputs, targets, parts=parts) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("class_weights", [(), WEIGHTS])
def test_the_reported_loss_of_an_evaluation_has_no_smoothing(class_weights: tuple[float, ...]) -> None:
    outputs, targets = samples()
    options = ClassificationOptions(label_smoothing=0.3, class_weights=class_weights)
    evaluated = classification(SPEC, options).for_evaluation()
    assert isinstance(evaluated, Classification)
    weight = torch.tensor(class_weights) if class_weights else None
    assert mean_loss(evaluated, outputs, targets, parts=2) == pytest.approx(
        float(cross_entropy(outputs, targets, weight=weight)), rel=1e-5
    )

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

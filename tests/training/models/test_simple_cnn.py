"""SimpleCnn: input sizes, parameter count, determinism and accuracy."""

from __future__ import annotations

import torch

from training.data.types import SampleSpec
from training.models.options import SimpleCnnOptions
from training.models.simple_cnn import SimpleCnn, simple_cnn


def test_images_of_any_size_map_to_logits_with_the_same_24058_weights() -> None:
    for shape in ((1, 1, 1), (1, 8, 8), (3, 32, 32), (3, 33, 47), (3, 224, 224)):
        with torch.device("meta"):
            model = simple_cnn(SampleSpec(shape=shape, outputs=7), SimpleCnnOptions())
        assert model(torch.empty(2, *shape, device="meta")).shape == (2, 7)
    small, large = (simple_cnn(SampleSpec(shape=(1, side, side), outputs=10), SimpleCnnOptions()) for side in (8, 224))
    small.load_state_dict(large.state_dict())
    assert sum(parameter.numel() for parameter in small.parameters()) == 24_058


def test_pooling_is_deterministic_on_cuda() -> None:
    """AdaptiveAvgPool2d raises under deterministic algorithms on CUDA, unless it lowers to a mean."""
    pooled = SimpleCnn(channels=1, classes=2, width=1, dropout=0).pool(torch.ones(1, 1, 4, 4, requires_grad=True))
    assert pooled.grad_fn.name() == "MeanBackward1"

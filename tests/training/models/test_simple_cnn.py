"""SimpleCnn: input sizes, parameter count, determinism and accuracy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from training.config.schema import OptimizerSettings, ScheduleSettings
from training.data.types import SampleSpec
from training.models.options import SimpleCnnOptions
from training.models.simple_cnn import SimpleCnn, simple_cnn
from training.optim import build_optimizer, learning_rate_at, set_learning_rate
from training.seeding import configure_threads

DIGITS = SampleSpec(shape=(1, 8, 8), outputs=10)


@pytest.fixture
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    configure_threads(1)
    yield
    configure_threads(threads)


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 8, 8), (3, 32, 32), (3, 33, 47), (3, 224, 224)])
def test_images_of_any_size_map_to_logits(shape: tuple[int, int, int]) -> None:
    with torch.device("meta"):
        model = simple_cnn(SampleSpec(shape=shape, outputs=7), SimpleCnnOptions())
    assert model(torch.empty(2, *shape, device="meta")).shape == (2, 7)


def test_the_default_network_for_digits_has_24058_parameters() -> None:
    assert parameter_count(simple_cnn(DIGITS, SimpleCnnOptions())) == 24_058


def test_weights_do_not_depend_on_the_image_size() -> None:
    large = simple_cnn(SampleSpec(shape=(1, 224, 224), outputs=10), SimpleCnnOptions())
    simple_cnn(DIGITS, SimpleCnnOptions()).load_state_dict(large.state_dict())


def test_pooling_is_deterministic_on_cuda() -> None:
    """AdaptiveAvgPool2d raises under deterministic algorithms on CUDA, unless it lowers to a mean."""
    pooled = SimpleCnn(channels=1, classes=2, width=1, dropout=0).pool(torch.ones(1, 1, 4, 4, requires_grad=True))
    assert pooled.grad_fn.name() == "MeanBackward1"


@pytest.mark.usefixtures("_one_thread")
def test_ten_epochs_on_digits_reach_97_percent_on_held_out_samples() -> None:
    images, labels = _digits()
    held_out = torch.arange(len(labels)) % 5 == 0
    torch.manual_seed(0)
    model = simple_cnn(DIGITS, SimpleCnnOptions())
    _fit(model, images[~held_out], labels[~held_out], epochs=10, batch=64)
    model.eval()
    with torch.no_grad():
        accuracy = (model(images[held_out]).argmax(1) == labels[held_out]).float().mean()
    assert accuracy >= 0.97


def _digits() -> tuple[Tensor, Tensor]:
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return (images - images.mean()) / images.std(), torch.tensor(labels)


def _fit(model: nn.Module, images: Tensor, labels: Tensor, *, epochs: int, batch: int) -> None:
    optimizer = build_optimizer(model, OptimizerSettings(), learning_rate=3e-3)
    steps_per_epoch = -(-len(labels) // batch)
    for epoch in range(epochs):
        for position, ids in enumerate(torch.split(torch.randperm(len(labels)), batch)):
            rate = learning_rate_at(
                epoch * steps_per_epoch + position,
                settings=ScheduleSettings(),
                peak=3e-3,
                total_steps=epochs * steps_per_epoch,
                steps_per_epoch=steps_per_epoch,
            )
            set_learning_rate(optimizer, rate)
            optimizer.zero_grad()
            cross_entropy(model(images[ids]), labels[ids]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

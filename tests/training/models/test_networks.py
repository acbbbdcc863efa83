"""The networks of the platform: published sizes and names, the effect of options, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from training.data.types import SampleSpec
from training.errors import SettingsError
from training.models.options import ResNetOptions, RnnOptions, SimpleCnnOptions
from training.models.resnet import BasicBlock, Bottleneck, ResNet, resnet18, resnet50, resnet101
from training.models.rnn import rnn
from training.models.simple_cnn import SimpleCnn, simple_cnn

IMAGENET = SampleSpec(shape=(3, 224, 224), outputs=1000)
CIFAR = SampleSpec(shape=(3, 32, 32), outputs=10)

Factory = Callable[[SampleSpec, ResNetOptions], ResNet]


def build_on_meta(factory: Factory, spec: SampleSpec, options: ResNetOptions | None = None) -> ResNet:
    with torch.device("meta"):
        return factory(spec, options or ResNetOptions())


@pytest.mark.parametrize(
    ("factory", "parameters", "entries", "shapes"),
    [
        (resnet18, 11_689_512, 122, {"layer2.0.downsample.0.weight": (128, 64, 1, 1), "layer4.1.bn2.running_var": (512,)}),
        (resnet50, 25_557_032, 320, {"layer1.0.downsample.1.weight": (256,), "layer4.2.conv3.weight": (2048, 512, 1, 1)}),
        (resnet101, 44_549_160, 626, {"layer3.22.conv2.weight": (256, 256, 3, 3), "fc.weight": (1000, 2048)}),
    ],
)  # fmt: skip
def test_the_weights_have_the_names_and_shapes_of_the_published_ones(
    factory: Factory, parameters: int, entries: int, shapes: dict[str, tuple[int, ...]]
) -> None:
    model = build_on_meta(factory, IMAGENET)
    state = model.state_dict()
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert len(state) == entries
    assert {name: tuple(state[name].shape) for name in shapes} == shapes
    assert model(torch.empty(2, 3, 224, 224, device="meta")).shape == (2, 1000)


def test_a_bottleneck_strides_in_its_3x3_convolution() -> None:
    block = Bottleneck(256, 128, stride=2)
    assert (block.conv1.stride, block.conv2.stride, block.conv3.stride) == ((1, 1), (2, 2), (1, 1))


@pytest.mark.parametrize(
    "block", [BasicBlock(8, 8, stride=1), Bottleneck(32, 8, stride=1)], ids=["basic", "bottleneck"]
)
def test_batch_norm_and_relu_follow_every_convolution_of_a_block(block: BasicBlock | Bottleneck) -> None:
    calls: list[str] = []
    for name in ("conv1", "bn1", "conv2", "bn2", "conv3", "bn3", "relu"):
        if hasattr(block, name):
            getattr(block, name).register_forward_pre_hook(lambda *_, name=name: calls.append(name))
    block(torch.rand(2, block.expansion * 8, 4, 4))
    convolutions = 2 if isinstance(block, BasicBlock) else 3
    assert calls == [name for number in range(1, convolutions + 1) for name in (f"conv{number}", f"bn{number}", "relu")]


def test_the_stem_determines_the_input_size_of_the_first_stage() -> None:
    for stem, size in (("imagenet", 8), ("cifar", 32)):
        model = build_on_meta(resnet18, CIFAR, ResNetOptions.model_validate({"stem": stem}))
        shapes: list[torch.Size] = []
        model.layer1.register_forward_pre_hook(lambda _, inputs, shapes=shapes: shapes.append(inputs[0].shape))
        model(torch.empty(2, 3, 32, 32, device="meta"))
        assert shapes == [(2, 64, size, size)]


def test_only_zero_init_residual_makes_a_block_without_projection_the_identity() -> None:
    for factory, channels, is_zero in ((resnet18, 512, True), (resnet50, 2048, True), (resnet18, 512, False)):
        block = factory(CIFAR, ResNetOptions(zero_init_residual=is_zero)).eval().layer4[1]
        inputs = torch.rand(2, channels, 4, 4)
        assert torch.allclose(block(inputs), inputs, rtol=0, atol=0) == is_zero


def test_convolutions_are_initialised_with_kaiming_variance() -> None:
    """2 / (outputs x kernel area), which preserves the variance of gradients through a ReLU (arXiv:1502.01852, equation 14)."""
    torch.manual_seed(0)
    weight = resnet18(CIFAR, ResNetOptions()).state_dict()["layer4.0.conv1.weight"]
    assert float(weight.std()) == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.01)


def test_every_parameter_gets_a_non_zero_gradient() -> None:
    model = resnet18(CIFAR, ResNetOptions(stem="cifar"))
    cross_entropy(model(torch.randn(4, 3, 32, 32)), torch.arange(4)).backward()  # type: ignore[no-untyped-call]
    without = [
        name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()
    ]
    assert without == []


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

"""ResNets: published parameter counts, names and shapes, and the effect of the options."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import cross_entropy

from training.data.types import SampleSpec
from training.models.options import ResNetOptions
from training.models.resnet import BasicBlock, Bottleneck, ResNet, resnet18, resnet50, resnet101

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

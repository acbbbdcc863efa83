"""Deep residual networks of He et al., "Deep Residual Learning for Image Recognition" (arXiv:1512.03385).

Bottlenecks stride in the 3x3 convolution, not in the first 1x1. This is "v1.5", the ResNet-50 of the common
implementations and published weights, about half a point better on ImageNet than the paper's. Parameters have
torchvision's names and shapes, so that published weights load.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor, nn

from training.data.types import SampleSpec
from training.models.inputs import channels_of
from training.models.options import ResNetOptions
from training.models.parts import Part


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut connection (figure 5, left)."""

    expansion: ClassVar[int] = 1

    def __init__(self, fan_in: int, width: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv3x3(fan_in, width, stride=stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv3x3(width, width)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _projection(fan_in, width, stride=stride)

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        """The batch norm right before the addition."""
        return self.bn2

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps (n, fan_in, h, w) to (n, width, h / stride, w / stride)."""
        residual = self.relu(self.bn1(self.conv1(inputs)))
        residual = self.bn2(self.conv2(residual))
        outputs: Tensor = self.relu(residual + self.downsample(inputs))
        return outputs


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a shortcut connection (figure 5, right)."""

    expansion: ClassVar[int] = 4

    def __init__(self, fan_in: int, width: int, *, stride: int) -> None:
        super().__init__()
        fan_out = width * self.expansion
        self.conv1 = _conv1x1(fan_in, width)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv3x3(width, width, stride=stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv1x1(width, fan_out)
        self.bn3 = nn.BatchNorm2d(fan_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _projection(fan_in, fan_out, stride=stride)

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        """The batch norm right before the addition."""
        return self.bn3

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps (n, fan_in, h, w) to (n, 4 * width, h / stride, w / stride)."""
        residual = self.relu(self.bn1(self.conv1(inputs)))
        residual = self.relu(self.bn2(self.conv2(residual)))
        residual = self.bn3(self.conv3(residual))
        outputs: Tensor = self.relu(residual + self.downsample(inputs))
        return outputs


class ResNet(nn.Module):
    """Stem, four stages of residual blocks, global average pooling, linear classifier (table 1)."""

    def __init__(
        self,
        *,
        block: type[BasicBlock | Bottleneck],
        depths: tuple[int, int, int, int],
        channels: int,
        classes: int,
        stem: Literal["imagenet", "cifar"],
        zero_init_residual: bool,
    ) -> None:
        """Initialises weights as in He et al., arXiv:1502.01852, with fan-out, which preserves the variance of gradients.

        Args:
            block: class of the residual blocks.
            depths: number of blocks in each stage.
            channels: channels of an image.
            classes: number of logits.
            stem: see `ResNetOptions`.
            zero_init_residual: see `ResNetOptions`.
        """
        super().__init__()
        if stem == "imagenet":
            self.conv1 = nn.Conv2d(channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
        else:
            self.conv1 = _conv3x3(channels, 64)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1) if stem == "imagenet" else nn.Identity()
        widths = (64, 128, 256, 512)
        fan_ins = (64, *(width * block.expansion for width in widths))
        self.layer1 = _stage(block, fan_ins[0], widths[0], depth=depths[0], stride=1)
        self.layer2 = _stage(block, fan_ins[1], widths[1], depth=depths[1], stride=2)
        self.layer3 = _stage(block, fan_ins[2], widths[2], depth=depths[2], stride=2)
        self.layer4 = _stage(block, fan_ins[3], widths[3], depth=depths[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(fan_ins[4], classes)
        self._initialise(zero_init_residual=zero_init_residual)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps images (n, channels, height, width) to logits (n, classes)."""
        return self._classify(self.layer4(self.layer3(self.layer2(self.layer1(self._stem(inputs))))))

    def parts(self) -> list[Part]:
        """The stem, each block, and the classifier."""
        blocks = [
            Part(names=(f"layer{stage}.{number}",), forward=block)
            for stage, layer in enumerate((self.layer1, self.layer2, self.layer3, self.layer4), start=1)
            for number, block in enumerate(layer)
        ]
        return [
            Part(names=("conv1", "bn1"), forward=self._stem),
            *blocks,
            Part(names=("fc",), forward=self._classify),
        ]

    def _stem(self, images: Tensor) -> Tensor:
        features: Tensor = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        return features

    def _classify(self, features: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.avgpool(features).flatten(1))
        return logits

    def _initialise(self, *, zero_init_residual: bool) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif zero_init_residual and isinstance(module, BasicBlock | Bottleneck):
                nn.init.zeros_(module.last_norm.weight)


def resnet18(spec: SampleSpec, options: ResNetOptions) -> ResNet:
    """Builds ResNet-18; 11,689,512 parameters for colour images and 1000 classes.

    Raises:
        SettingsError: the samples are not images.
    """
    return _resnet("resnet18", BasicBlock, (2, 2, 2, 2), spec, options)


def resnet50(spec: SampleSpec, options: ResNetOptions) -> ResNet:
    """Builds ResNet-50; 25,557,032 parameters for colour images and 1000 classes.

    Raises:
        SettingsError: the samples are not images.
    """
    return _resnet("resnet50", Bottleneck, (3, 4, 6, 3), spec, options)


def resnet101(spec: SampleSpec, options: ResNetOptions) -> ResNet:
    """Builds ResNet-101; 44,549,160 parameters for colour images and 1000 classes.

    Raises:
        SettingsError: the samples are not images.
    """
    return _resnet("resnet101", Bottleneck, (3, 4, 23, 3), spec, options)


def _resnet(
    name: str,
    block: type[BasicBlock | Bottleneck],
    depths: tuple[int, int, int, int],
    spec: SampleSpec,
    options: ResNetOptions,
) -> ResNet:
    return ResNet(
        block=block,
        depths=depths,
        channels=channels_of(spec, model=name),
        classes=spec.outputs,
        stem=options.stem,
        zero_init_residual=options.zero_init_residual,
    )


def _stage(block: type[BasicBlock | Bottleneck], fan_in: int, width: int, *, depth: int, stride: int) -> nn.Sequential:
    fan_out = width * block.expansion
    rest = (block(fan_out, width, stride=1) for _ in range(depth - 1))
    return nn.Sequential(block(fan_in, width, stride=stride), *rest)


def _projection(fan_in: int, fan_out: int, *, stride: int) -> nn.Module:
    """The shortcut: identity if the shapes match, otherwise a projection (option B of the paper)."""
    if stride == 1 and fan_in == fan_out:
        return nn.Identity()
    return nn.Sequential(_conv1x1(fan_in, fan_out, stride=stride), nn.BatchNorm2d(fan_out))


def _conv3x3(fan_in: int, fan_out: int, *, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(fan_in, fan_out, kernel_size=3, stride=stride, padding=1, bias=False)


def _conv1x1(fan_in: int, fan_out: int, *, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(fan_in, fan_out, kernel_size=1, stride=stride, bias=False)

"""A small convolutional network with batch norm, for images from 8 x 8 to 224 x 224."""

from __future__ import annotations

from torch import Tensor, nn

from training.data.types import SampleSpec
from training.models.inputs import channels_of
from training.models.options import SimpleCnnOptions
from training.models.parts import Part


class SimpleCnn(nn.Module):
    """Three stages of 3x3 convolution, batch norm and ReLU, max-pooling after the first two, global average, linear.

    Global average pooling makes the number of weights independent of the image size: 24,058 for grey images, 10 classes
    and the default width. It is the only adaptive pooling with a deterministic backward pass on CUDA.
    """

    def __init__(self, *, channels: int, classes: int, width: int, dropout: float) -> None:
        super().__init__()
        self.stage1 = nn.Sequential(_conv_bn_relu(channels, width), _max_pool())
        self.stage2 = nn.Sequential(_conv_bn_relu(width, 2 * width), _max_pool())
        self.stage3 = _conv_bn_relu(2 * width, 4 * width)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps images (n, channels, height, width) to logits (n, classes)."""
        return self._classify(self.stage3(self.stage2(self.stage1(inputs))))

    def parts(self) -> list[Part]:
        """The three stages and the head."""
        stages = (("stage1", self.stage1), ("stage2", self.stage2), ("stage3", self.stage3))
        return [
            *(Part(names=(name,), forward=stage) for name, stage in stages),
            Part(names=("head",), forward=self._classify),
        ]

    def _classify(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(self.dropout(self.pool(features).flatten(1)))
        return logits


def simple_cnn(spec: SampleSpec, options: SimpleCnnOptions) -> SimpleCnn:
    """Builds a `SimpleCnn` for the dataset's images.

    Raises:
        SettingsError: the samples are not images.
    """
    return SimpleCnn(
        channels=channels_of(spec, model="simple_cnn"),
        classes=spec.outputs,
        width=options.width,
        dropout=options.dropout,
    )


def _conv_bn_relu(fan_in: int, fan_out: int) -> nn.Sequential:
    # Batch norm subtracts the mean, which cancels a bias of the convolution.
    convolution = nn.Conv2d(fan_in, fan_out, kernel_size=3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(fan_out), nn.ReLU(inplace=True))


def _max_pool() -> nn.MaxPool2d:
    # Rounding up keeps the border of odd sizes and the last pixel of tiny images.
    return nn.MaxPool2d(2, ceil_mode=True)
